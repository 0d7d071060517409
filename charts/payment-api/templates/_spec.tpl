{{- define "payment-api.spec" -}}
settings:
  - APIPAY_LOG_LEVEL
  - APIPAY_WEBHOOK_ALLOW_CIDRS
  - APIPAY_GATEWAY_LIVE
  - APIPAY_GATEWAY_TIMEOUT
  - APIPAY_GATEWAY_VISIBILITY_DELAY
  - APIPAY_IDEMPOTENCY_LEASE
  - APIPAY_IDEMPOTENCY_TTL
  - APIPAY_AMOUNT_MIN
  - APIPAY_RATE_LIMIT_RPS
  - APIPAY_RATE_LIMIT_BURST
secrets:
  - env: APIPAY_DATABASE_URL_FILE
    secret: {{ .Values.database.existingSecret | default .Values.global.database.existingSecret }}
    key: {{ .Values.database.key }}
    file: database-url
  - env: APIPAY_SECRETS_KEYSET_FILE
    secret: {{ .Values.global.keyset.existingSecret }}
    key: {{ .Values.global.keyset.key }}
    file: keyset.json
kafka: false
# The gateway of live mode.
https: {{ or (get .Values.config "APIPAY_GATEWAY_LIVE") (get .Values.global.config "APIPAY_GATEWAY_LIVE") | empty | not }}
{{- end -}}
