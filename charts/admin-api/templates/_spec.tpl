{{- define "admin-api.spec" -}}
{{- $issuer := or (get .Values.config "APIPAY_OIDC_ISSUER") (get .Values.global.config "APIPAY_OIDC_ISSUER") -}}
{{- if not (or $issuer .Values.staffTokens.existingSecret) -}}
{{- fail "admin-api: nobody could sign in: set config.APIPAY_OIDC_ISSUER or staffTokens.existingSecret" -}}
{{- end -}}
settings:
  - APIPAY_LOG_LEVEL
  - APIPAY_WEBHOOK_ALLOW_CIDRS
  - APIPAY_GATEWAY_VISIBILITY_DELAY
  - APIPAY_OIDC_ISSUER
  - APIPAY_OIDC_AUDIENCE
  - APIPAY_OIDC_ROLE_CLAIM
  - APIPAY_OIDC_CLIENT_ID
  - APIPAY_OIDC_REDIRECT_URL
  - APIPAY_RETENTION_AUDIT
secrets:
  - env: APIPAY_DATABASE_URL_FILE
    secret: {{ .Values.database.existingSecret | default .Values.global.database.existingSecret }}
    key: {{ .Values.database.key }}
    file: database-url
  {{- with .Values.staffTokens }}
  {{- if .existingSecret }}
  - env: APIPAY_ADMIN_TOKENS_FILE
    secret: {{ .existingSecret }}
    key: {{ .key }}
    file: staff-tokens.json
  {{- end }}
  {{- end }}
  {{- with .Values.oidcClientSecret }}
  {{- if .existingSecret }}
  - env: APIPAY_OIDC_CLIENT_SECRET_FILE
    secret: {{ .existingSecret }}
    key: {{ .key }}
    file: oidc-client-secret
  {{- end }}
  {{- end }}
kafka: false
# The issuer of staff tokens.
https: {{ $issuer | empty | not }}
{{- end -}}
