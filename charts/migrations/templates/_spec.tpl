{{- define "migrations.spec" -}}
settings: []
secrets:
  - env: APIPAY_DATABASE_URL_FILE
    secret: {{ .Values.database.existingSecret | default .Values.global.database.existingSecret }}
    key: {{ .Values.database.key }}
    file: database-url
{{- end -}}

{{/*
What the job needs is a hook as it is, made just before it: at the first install nothing else of the release is there yet. It is
made anew each time, and taken away once the job has succeeded; a job that failed stays to be looked at.
*/}}
{{- define "migrations.hook" -}}
helm.sh/hook: pre-install,pre-upgrade
helm.sh/hook-weight: {{ . | quote }}
helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
{{- end -}}
