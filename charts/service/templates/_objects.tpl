{{- define "service.serviceaccount" -}}
apiVersion: v1
kind: ServiceAccount
metadata:
  name: {{ include "service.fullname" . }}
  labels:
    {{- include "service.labels" . | nindent 4 }}
automountServiceAccountToken: false
{{- end -}}

{{- define "service.service" -}}
apiVersion: v1
kind: Service
metadata:
  name: {{ include "service.fullname" . }}
  labels:
    {{- include "service.labels" . | nindent 4 }}
spec:
  type: ClusterIP
  selector:
    {{- include "service.selector" . | nindent 4 }}
  ports:
    {{- if .Values.ports.http }}
    - name: http
      port: {{ .Values.ports.http }}
      targetPort: http
      appProtocol: http
    {{- end }}
    - name: ops
      port: {{ .Values.ports.ops }}
      targetPort: ops
      appProtocol: http
{{- end -}}

{{- define "service.poddisruptionbudget" -}}
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: {{ include "service.fullname" . }}
  labels:
    {{- include "service.labels" . | nindent 4 }}
spec:
  # One at a time, also with one replica: a budget that forbids every eviction only stops the drain of its node.
  maxUnavailable: 1
  unhealthyPodEvictionPolicy: AlwaysAllow
  selector:
    matchLabels:
      {{- include "service.selector" . | nindent 6 }}
{{- end -}}

{{- define "service.horizontalpodautoscaler" -}}
{{- with .Values.autoscaling }}
{{- if .enabled }}
{{- if gt (int .minReplicas) (int .maxReplicas) }}
{{- fail (printf "%s: autoscaling.minReplicas is above maxReplicas" $.Chart.Name) }}
{{- end }}
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata:
  name: {{ include "service.fullname" $ }}
  labels:
    {{- include "service.labels" $ | nindent 4 }}
spec:
  scaleTargetRef:
    apiVersion: apps/v1
    kind: Deployment
    name: {{ include "service.fullname" $ }}
  minReplicas: {{ .minReplicas }}
  maxReplicas: {{ .maxReplicas }}
  metrics:
    - type: Resource
      resource:
        name: cpu
        target:
          type: Utilization
          averageUtilization: {{ .targetCPUUtilizationPercentage }}
    {{- range .externalMetrics }}
    - type: External
      external:
        metric:
          name: {{ .name }}
          {{- with .matchLabels }}
          selector:
            matchLabels:
              {{- toYaml . | nindent 14 }}
          {{- end }}
        target:
          {{- if .averageValue }}
          type: AverageValue
          averageValue: {{ .averageValue | quote }}
          {{- else }}
          type: Value
          value: {{ .value | quote }}
          {{- end }}
    {{- end }}
  behavior:
    scaleDown:
      stabilizationWindowSeconds: 300
{{- end }}
{{- end }}
{{- end -}}

{{/* The job label becomes the service's name, which dashboards and alerts select by. */}}
{{- define "service.servicemonitor" -}}
{{- with .Values.global.monitoring }}
{{- if .serviceMonitors }}
apiVersion: monitoring.coreos.com/v1
kind: ServiceMonitor
metadata:
  name: {{ include "service.fullname" $ }}
  labels:
    {{- include "service.labels" $ | nindent 4 }}
    {{- with .labels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
spec:
  jobLabel: app.kubernetes.io/name
  selector:
    matchLabels:
      {{- include "service.selector" $ | nindent 6 }}
  endpoints:
    - port: ops
      path: /metrics
      interval: {{ .interval }}
{{- end }}
{{- end }}
{{- end -}}

{{- define "service.ingress" -}}
{{- with .Values.ingress }}
{{- if .enabled }}
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata:
  name: {{ include "service.fullname" $ }}
  labels:
    {{- include "service.labels" $ | nindent 4 }}
  {{- with .annotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  {{- with .className }}
  ingressClassName: {{ . }}
  {{- end }}
  rules:
    - host: {{ required (printf "%s: ingress.host is needed" $.Chart.Name) .host }}
      http:
        paths:
          - path: /
            pathType: Prefix
            backend:
              service:
                name: {{ include "service.fullname" $ }}
                port:
                  name: http
  tls:
    - hosts: [{{ .host }}]
      secretName: {{ required (printf "%s: ingress.tlsSecret is needed: API keys and tokens do not travel in clear" $.Chart.Name) .tlsSecret }}
{{- end }}
{{- end }}
{{- end -}}
