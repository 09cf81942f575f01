{{- define "tampu.name" -}}
{{- $own := ternary .Release.Name (printf "%s-tampu" .Release.Name) (contains "tampu" .Release.Name) -}}
{{- $own | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{- define "tampu.selector" -}}
app.kubernetes.io/name: tampu
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end -}}

{{- define "tampu.labels" -}}
{{ include "tampu.selector" . }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version }}
{{- end -}}

{{- define "tampu.secret" -}}
{{- $server := .Values.server -}}
{{- if and (not $server.existingSecret) (not $server.url) -}}
{{- fail "set server.existingSecret to the secret that has the URL of the server, or server.url" -}}
{{- end -}}
{{- $server.existingSecret | default (printf "%s-server" (include "tampu.name" .)) -}}
{{- end -}}

{{- define "tampu.pod" -}}
{{- $values := .root.Values -}}
metadata:
  labels:
    {{- include "tampu.labels" . | nindent 4 }}
    {{- with $values.podLabels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- with $values.podAnnotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  terminationGracePeriodSeconds: {{ .stopSeconds }}
  automountServiceAccountToken: false
  {{- with $values.serviceAccountName }}
  serviceAccountName: {{ . }}
  {{- end }}
  {{- with $values.imagePullSecrets }}
  imagePullSecrets:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  securityContext:
    {{- toYaml $values.podSecurityContext | nindent 4 }}
  {{- with $values.nodeSelector }}
  nodeSelector:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $values.tolerations }}
  tolerations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $values.affinity }}
  affinity:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  containers:
    - name: tampu
      image: {{ printf "%s:%s" $values.image.repository $values.image.tag | quote }}
      imagePullPolicy: {{ $values.image.pullPolicy }}
      args:
        {{- toYaml .args | nindent 8 }}
      env:
        - name: TAMPU_URL
          valueFrom:
            secretKeyRef:
              name: {{ include "tampu.secret" .root }}
              key: {{ $values.server.key }}
        {{- with .env }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
        {{- with $values.env }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      {{- with $values.envFrom }}
      envFrom:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      ports:
        - name: http
          containerPort: {{ .port }}
      {{- if .probes }}
      readinessProbe:
        httpGet: {path: /ready, port: http}
        periodSeconds: 5
      livenessProbe:
        httpGet: {path: /live, port: http}
        periodSeconds: 10
        failureThreshold: 6
      {{- else }}
      readinessProbe:
        tcpSocket: {port: http}
        periodSeconds: 5
      {{- end }}
      resources:
        {{- toYaml .resources | nindent 8 }}
      securityContext:
        {{- toYaml $values.securityContext | nindent 8 }}
{{- end -}}

{{- define "tampu.budget" -}}
{{- if .maxUnavailable }}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: {{ .name }}
  labels:
    {{- include "tampu.labels" . | nindent 4 }}
spec:
  maxUnavailable: {{ .maxUnavailable }}
  selector:
    matchLabels:
      {{- include "tampu.selector" . | nindent 6 }}
{{- end }}
{{- end -}}
