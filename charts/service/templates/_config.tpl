{{/* Numbers come from YAML as float64, which prints 1000000 as 1e+06. */}}
{{- define "service.text" -}}
{{- if and (kindIs "float64" .) (eq (floor .) .) -}}
{{- int64 . -}}
{{- else -}}
{{- . -}}
{{- end -}}
{{- end -}}

{{/*
The environment of the service without its secrets, as a map. global.config serves every chart, so each takes from it what its
service reads; the chart's own config comes after it. An empty value leaves the service's default.
*/}}
{{- define "service.settings" -}}
{{- $chart := .Chart.Name -}}
{{- $spec := include "service.spec" . | fromYaml -}}
{{- $settings := dict -}}
{{- range $name, $value := .Values.global.config -}}
{{- if has $name $spec.settings -}}{{- $_ := set $settings $name (include "service.text" $value) -}}{{- end -}}
{{- end -}}
{{- range $name, $value := .Values.config -}}
{{- if not (has $name $spec.settings) -}}
{{- fail (printf "%s: config.%s is not a setting that this chart takes" $chart $name) -}}
{{- end -}}
{{- $_ := set $settings $name (include "service.text" $value) -}}
{{- end -}}
{{- if or (hasKey .Values.config "APIPAY_DEV") (hasKey .Values.global.config "APIPAY_DEV") -}}
{{- fail "APIPAY_DEV permits what only a development stack may do: the charts do not set it" -}}
{{- end -}}
{{- if eq (get $settings "APIPAY_GATEWAY_LIVE") "sandbox" -}}
{{- fail "APIPAY_GATEWAY_LIVE=sandbox moves no money: name a real connector, or leave it empty" -}}
{{- end -}}
{{- range $name, $value := $settings -}}
{{- if eq $value "" -}}{{- $_ := unset $settings $name -}}{{- end -}}
{{- end -}}
{{- if .Values.ports.http -}}
{{- $_ := set $settings "APIPAY_HTTP_ADDR" (printf "0.0.0.0:%d" (int .Values.ports.http)) -}}
{{- end -}}
{{- $_ := set $settings "APIPAY_OPS_ADDR" (printf "0.0.0.0:%d" (int .Values.ports.ops)) -}}
{{- if $spec.kafka -}}
{{- with .Values.global.kafka -}}
{{- $_ := set $settings "APIPAY_KAFKA_BROKERS" (join "," .brokers) -}}
{{- $_ := set $settings "APIPAY_KAFKA_TLS" (toString .tls) -}}
{{- if .sasl.mechanism -}}
{{- $_ := set $settings "APIPAY_KAFKA_SASL_MECHANISM" .sasl.mechanism -}}
{{- $_ := set $settings "APIPAY_KAFKA_SASL_USERNAME" (required "global.kafka.sasl.username is needed with a mechanism" .sasl.username) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- range $name, $value := .Values.global.otel -}}
{{- if not (hasPrefix "OTEL_" $name) -}}{{- fail (printf "global.otel.%s: only OTEL_* belongs here" $name) -}}{{- end -}}
{{- $_ := set $settings $name (include "service.text" $value) -}}
{{- end -}}
{{- $settings | toYaml -}}
{{- end -}}

{{- define "service.configmap" -}}
apiVersion: v1
kind: ConfigMap
metadata:
  name: {{ include "service.fullname" . }}
  labels:
    {{- include "service.labels" . | nindent 4 }}
data:
  {{- range $name, $value := include "service.settings" . | fromYaml }}
  {{ $name }}: {{ toString $value | quote }}
  {{- end }}
{{- end -}}

{{/* The secrets that the service gets, each as the path of its file. They are named here and nowhere held. */}}
{{- define "service.secretEnv" -}}
{{- range (include "service.spec" . | fromYaml).secrets }}
- name: {{ .env }}
  value: /etc/apipay/secrets/{{ .file }}
{{- end }}
{{- end -}}

{{/* One volume of all of them, only the keys that this service needs. Kubernetes renews the files when a Secret changes. */}}
{{- define "service.secretVolume" -}}
- name: secrets
  projected:
    defaultMode: 0440
    sources:
      {{- range (include "service.spec" . | fromYaml).secrets }}
      - secret:
          name: {{ .secret }}
          items:
            - key: {{ .key }}
              path: {{ .file }}
      {{- end }}
{{- with .Values.global.caBundle }}
{{- if .existingConfigMap }}
- name: ca
  configMap:
    name: {{ .existingConfigMap }}
    items:
      - key: {{ .key }}
        path: ca.crt
{{- end }}
{{- end }}
{{- end -}}

{{- define "service.volumeMounts" -}}
- name: secrets
  mountPath: /etc/apipay/secrets
  readOnly: true
{{- if .Values.global.caBundle.existingConfigMap }}
- name: ca
  mountPath: /etc/apipay/ca
  readOnly: true
{{- end }}
{{- end -}}

{{/* Own roots are trusted beside the system's, not instead of them. */}}
{{- define "service.caEnv" -}}
{{- if .Values.global.caBundle.existingConfigMap }}
- name: SSL_CERT_DIR
  value: /etc/ssl/certs:/etc/apipay/ca
{{- end }}
{{- end -}}

{{- define "service.kafkaSecret" -}}
{{- with .Values.global.kafka.sasl }}
{{- if .mechanism }}
- env: APIPAY_KAFKA_SASL_PASSWORD_FILE
  secret: {{ required "global.kafka.sasl.existingSecret is needed with a mechanism" .existingSecret }}
  key: {{ .key }}
  file: kafka-password
{{- end }}
{{- end }}
{{- end -}}
