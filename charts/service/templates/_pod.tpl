{{- define "service.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
fsGroupChangePolicy: OnRootMismatch
seccompProfile:
  type: RuntimeDefault
{{- end -}}

{{- define "service.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
runAsNonRoot: true
capabilities:
  drop: [ALL]
{{- end -}}

{{- define "service.pullSecrets" -}}
{{- with concat .Values.global.image.pullSecrets .Values.image.pullSecrets | uniq }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
{{- end -}}

{{- define "service.placement" -}}
{{- with .Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- end -}}

{{/*
A failed liveness probe means a loop that no longer turns; readiness asks the database, with two seconds of its own. The start
may wait 30 seconds for the database before it gives up, so the startup probe is patient for longer than that.
*/}}
{{- define "service.probes" -}}
startupProbe:
  httpGet: {path: /livez, port: ops}
  periodSeconds: 2
  timeoutSeconds: 3
  failureThreshold: 45
livenessProbe:
  httpGet: {path: /livez, port: ops}
  periodSeconds: 10
  timeoutSeconds: 3
  failureThreshold: 3
readinessProbe:
  httpGet: {path: /readyz, port: ops}
  periodSeconds: 5
  timeoutSeconds: 3
  failureThreshold: 2
{{- end -}}

{{/* enableServiceLinks: a Service called apipay-... would put APIPAY_..._PORT into the environment, and the start refuses unknown names. */}}
{{- define "service.deployment" -}}
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ include "service.fullname" . }}
  labels:
    {{- include "service.labels" . | nindent 4 }}
spec:
  {{- if not .Values.autoscaling.enabled }}
  replicas: {{ .Values.replicas }}
  {{- end }}
  revisionHistoryLimit: 5
  progressDeadlineSeconds: 300
  strategy:
    type: RollingUpdate
    rollingUpdate:
      maxUnavailable: 0
      maxSurge: 1
  selector:
    matchLabels:
      {{- include "service.selector" . | nindent 6 }}
  template:
    metadata:
      labels:
        {{- include "service.labels" . | nindent 8 }}
        {{- with .Values.podLabels }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      annotations:
        checksum/config: {{ include "service.configmap" . | sha256sum }}
        {{- with .Values.podAnnotations }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
    spec:
      serviceAccountName: {{ include "service.fullname" . }}
      automountServiceAccountToken: false
      enableServiceLinks: false
      # The pause before SIGTERM, the 15 seconds that a service takes at most to drain, and 5 in reserve.
      terminationGracePeriodSeconds: {{ add .Values.preStopSeconds 15 5 }}
      {{- with include "service.pullSecrets" . | trim }}{{ . | nindent 6 }}{{ end }}
      securityContext:
        {{- include "service.podSecurity" . | nindent 8 }}
      {{- with include "service.placement" . | trim }}{{ . | nindent 6 }}{{ end }}
      topologySpreadConstraints:
        {{- range list "topology.kubernetes.io/zone" "kubernetes.io/hostname" }}
        - topologyKey: {{ . }}
          maxSkew: 1
          whenUnsatisfiable: ScheduleAnyway
          labelSelector:
            matchLabels:
              {{- include "service.selector" $ | nindent 14 }}
          matchLabelKeys: [pod-template-hash]
        {{- end }}
      containers:
        - name: {{ .Chart.Name }}
          image: {{ include "service.image" . | quote }}
          imagePullPolicy: {{ .Values.global.image.pullPolicy }}
          securityContext:
            {{- include "service.containerSecurity" . | nindent 12 }}
          envFrom:
            - configMapRef:
                name: {{ include "service.fullname" . }}
          env:
            {{- include "service.secretEnv" . | trim | nindent 12 }}
            {{- with include "service.caEnv" . | trim }}{{ . | nindent 12 }}{{ end }}
          ports:
            {{- if .Values.ports.http }}
            - name: http
              containerPort: {{ .Values.ports.http }}
            {{- end }}
            - name: ops
              containerPort: {{ .Values.ports.ops }}
          {{- include "service.probes" . | nindent 10 }}
          {{- if .Values.preStopSeconds }}
          # Until every proxy has heard that this endpoint is gone, it goes on answering.
          lifecycle:
            preStop:
              sleep:
                seconds: {{ .Values.preStopSeconds }}
          {{- end }}
          resources:
            {{- toYaml .Values.resources | nindent 12 }}
          volumeMounts:
            {{- include "service.volumeMounts" . | nindent 12 }}
      volumes:
        {{- include "service.secretVolume" . | nindent 8 }}
{{- end -}}
