{{- define "outbox-relay.spec" -}}
settings:
  - APIPAY_LOG_LEVEL
  - APIPAY_KAFKA_CREATE_TOPICS
  - APIPAY_OUTBOX_BATCH
  - APIPAY_RETENTION_OUTBOX
secrets:
  - env: APIPAY_DATABASE_URL_FILE
    secret: {{ .Values.database.existingSecret | default .Values.global.database.existingSecret }}
    key: {{ .Values.database.key }}
    file: database-url
  {{- with include "service.kafkaSecret" . | trim }}{{ . | nindent 2 }}{{ end }}
kafka: true
{{- end -}}
