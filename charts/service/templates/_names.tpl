{{/* A release called like the chart gives its name alone: payment-api, and not payment-api-payment-api. */}}
{{- define "service.fullname" -}}
{{- if contains .Chart.Name .Release.Name -}}
{{- .Release.Name | trunc 63 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name .Chart.Name | trunc 63 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* What a Deployment, a Service and a budget select by. It can never change: a Deployment's selector is immutable. */}}
{{- define "service.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "service.labels" -}}
{{ include "service.selector" . }}
app.kubernetes.io/part-of: apipay
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{/* By digest if there is one, else by tag; the tag is the chart's appVersion unless somebody says otherwise. */}}
{{- define "service.image" -}}
{{- $image := .Values.image -}}
{{- $registry := $image.registry | default .Values.global.image.registry -}}
{{- $name := ternary (printf "%s/%s" $registry $image.repository) $image.repository (ne $registry "") -}}
{{- $tag := $image.tag | default .Values.global.image.tag | default .Chart.AppVersion -}}
{{- if $image.digest -}}
{{- printf "%s@%s" $name $image.digest -}}
{{- else if eq (lower $tag) "latest" -}}
{{- fail (printf "%s: the image's tag must name one build, and latest does not" .Chart.Name) -}}
{{- else -}}
{{- printf "%s:%s" $name $tag -}}
{{- end -}}
{{- end -}}

{{/* The chart's own facts: which settings its service reads, which secrets it mounts, what it talks to. */}}
{{- define "service.spec" -}}
{{- $spec := include (printf "%s.spec" .Chart.Name) . | fromYaml -}}
{{- if hasKey $spec "Error" -}}
{{- fail (printf "%s.spec: %s" .Chart.Name $spec.Error) -}}
{{- end -}}
{{- $spec | toYaml -}}
{{- end -}}
