{{- define "webhook-dispatcher.spec" -}}
settings:
  - APIPAY_LOG_LEVEL
  - APIPAY_WEBHOOK_RETRY_SCHEDULE
  - APIPAY_WEBHOOK_TIMEOUT
  - APIPAY_WEBHOOK_LEASE
  - APIPAY_WEBHOOK_ENDPOINT_CONCURRENCY
  - APIPAY_WEBHOOK_ALLOW_CIDRS
  - APIPAY_WEBHOOK_DNS
  - APIPAY_RETENTION_DELIVERIES
secrets:
  - env: APIPAY_DATABASE_URL_FILE
    secret: {{ .Values.database.existingSecret | default .Values.global.database.existingSecret }}
    key: {{ .Values.database.key }}
    file: database-url
  - env: APIPAY_SECRETS_KEYSET_FILE
    secret: {{ .Values.global.keyset.existingSecret }}
    key: {{ .Values.global.keyset.key }}
    file: keyset.json
  {{- with include "service.kafkaSecret" . | trim }}{{ . | nindent 2 }}{{ end }}
  {{- with .Values.proxyURL }}
  {{- if .existingSecret }}
  - env: APIPAY_WEBHOOK_PROXY_URL_FILE
    secret: {{ .existingSecret }}
    key: {{ .key }}
    file: proxy-url
  {{- end }}
  {{- end }}
kafka: true
webhooks: true
{{- end -}}
