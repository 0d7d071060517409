{{/*
Public addresses: what the dispatcher itself accepts as an endpoint's address, so that a mistake in one of the two is caught by
the other. The charts' tests hold this list against the library that the dispatcher uses.
*/}}
{{- define "service.publicPeers" -}}
- ipBlock:
    cidr: 0.0.0.0/0
    except:
      {{- range splitList " " "0.0.0.0/8 10.0.0.0/8 100.64.0.0/10 127.0.0.0/8 168.63.129.16/32 169.254.0.0/16 172.16.0.0/12 192.0.0.0/24 192.0.2.0/24 192.31.196.0/24 192.52.193.0/24 192.88.99.0/24 192.168.0.0/16 192.175.48.0/24 198.18.0.0/15 198.51.100.0/24 203.0.113.0/24 224.0.0.0/4 240.0.0.0/4" }}
      - {{ . }}
      {{- end }}
      {{- range .Values.global.networkPolicy.neverPublic }}
      {{- if not (contains ":" .) }}
      - {{ . }}
      {{- end }}
      {{- end }}
- ipBlock:
    cidr: 2000::/3
    except:
      {{- range splitList " " "2001::/23 2001:db8::/32 2002::/16 2620:4f:8000::/48 3fff::/20" }}
      - {{ . }}
      {{- end }}
      {{- range .Values.global.networkPolicy.neverPublic }}
      {{- if contains ":" . }}
      - {{ . }}
      {{- end }}
      {{- end }}
{{- end -}}

{{/* An empty list of peers means everybody, so it is refused wherever a rule is made of one. */}}
{{- define "service.peers" -}}
{{- if not .peers -}}{{- fail (printf "%s must not be empty: to a NetworkPolicy that means everybody" .name) -}}{{- end -}}
{{- .peers | toYaml -}}
{{- end -}}

{{- define "service.dnsEgress" -}}
- to:
    {{- include "service.peers" (dict "peers" .Values.global.networkPolicy.dns "name" "global.networkPolicy.dns") | nindent 4 }}
  ports:
    - {protocol: UDP, port: 53}
    - {protocol: TCP, port: 53}
{{- end -}}

{{- define "service.databaseEgress" -}}
- to:
    {{- include "service.peers" (dict "peers" .Values.global.database.peers "name" "global.database.peers") | nindent 4 }}
  ports:
    {{- range .Values.global.database.ports }}
    - {protocol: TCP, port: {{ . }}}
    {{- end }}
{{- end -}}

{{- define "service.kafkaEgress" -}}
- to:
    {{- include "service.peers" (dict "peers" .Values.global.kafka.peers "name" "global.kafka.peers") | nindent 4 }}
  ports:
    {{- $ports := list }}
    {{- range .Values.global.kafka.brokers }}
    {{- $ports = append $ports (regexFind "[0-9]+$" .) }}
    {{- end }}
    {{- range concat $ports .Values.global.kafka.morePorts | uniq }}
    - {protocol: TCP, port: {{ . }}}
    {{- end }}
{{- end -}}

{{/* Traces and metrics go to the collector that global.otel names. */}}
{{- define "service.otelEgress" -}}
{{- $ports := list }}
{{- range $suffix := list "ENDPOINT" "TRACES_ENDPOINT" "METRICS_ENDPOINT" }}
{{- with get $.Values.global.otel (printf "OTEL_EXPORTER_OTLP_%s" $suffix) }}
{{- $ports = append $ports (regexFind "[0-9]+$" (urlParse .).host | default (ternary "443" "80" (hasPrefix "https:" .))) }}
{{- end }}
{{- end }}
{{- if $ports }}
- to:
    {{- include "service.peers" (dict "peers" .Values.global.networkPolicy.otel "name" "global.networkPolicy.otel") | nindent 4 }}
  ports:
    {{- range uniq $ports }}
    - {protocol: TCP, port: {{ . }}}
    {{- end }}
{{- end }}
{{- end -}}

{{/*
Where webhooks go: any port of any public address, the internal receivers that APIPAY_WEBHOOK_ALLOW_CIDRS permits, and the
resolver of APIPAY_WEBHOOK_DNS if it is an address.
*/}}
{{- define "service.webhookEgress" -}}
{{- $settings := include "service.settings" . | fromYaml }}
- to:
    {{- include "service.publicPeers" . | nindent 4 }}
  ports:
    - {protocol: TCP, port: 1, endPort: 65535}
{{- with get $settings "APIPAY_WEBHOOK_ALLOW_CIDRS" }}
- to:
    {{- range splitList "," . }}
    - ipBlock:
        cidr: {{ trim . }}
    {{- end }}
  ports:
    - {protocol: TCP, port: 1, endPort: 65535}
{{- end }}
{{- with get $settings "APIPAY_WEBHOOK_DNS" }}
{{- if regexMatch "^[0-9.]+:[0-9]+$" . }}
- to:
    - ipBlock:
        cidr: {{ printf "%s/32" (splitList ":" . | first) }}
  ports:
    - {protocol: UDP, port: {{ splitList ":" . | last }}}
    - {protocol: TCP, port: {{ splitList ":" . | last }}}
{{- end }}
{{- end }}
{{- end -}}

{{/* Selecting a pod for both directions denies whatever is not listed. */}}
{{- define "service.networkpolicy" -}}
{{- if .Values.global.networkPolicy.enabled }}
{{- $spec := include "service.spec" . | fromYaml }}
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata:
  name: {{ include "service.fullname" . }}
  labels:
    {{- include "service.labels" . | nindent 4 }}
spec:
  podSelector:
    matchLabels:
      {{- include "service.selector" . | nindent 6 }}
  policyTypes: [Ingress, Egress]
  ingress:
    - from:
        {{- include "service.peers" (dict "peers" .Values.global.networkPolicy.prometheus "name" "global.networkPolicy.prometheus") | nindent 8 }}
      ports:
        - {protocol: TCP, port: ops}
    {{- if .Values.ports.http }}
    - from:
        {{- include "service.peers" (dict "peers" .Values.networkPolicy.clients "name" (printf "%s: networkPolicy.clients" .Chart.Name)) | nindent 8 }}
      ports:
        - {protocol: TCP, port: http}
    {{- end }}
  egress:
    {{- include "service.dnsEgress" . | nindent 4 }}
    {{- include "service.databaseEgress" . | nindent 4 }}
    {{- if $spec.kafka }}
    {{- include "service.kafkaEgress" . | nindent 4 }}
    {{- end }}
    {{- with include "service.otelEgress" . | trim }}{{ . | nindent 4 }}{{ end }}
    {{- if $spec.webhooks }}
    {{- include "service.webhookEgress" . | trim | nindent 4 }}
    {{- end }}
    {{- if $spec.https }}
    - to:
        {{- include "service.publicPeers" . | nindent 8 }}
      ports:
        - {protocol: TCP, port: 443}
    {{- end }}
    {{- with .Values.networkPolicy.extraEgress }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
{{- end }}
{{- end -}}
