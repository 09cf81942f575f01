{{- define "tampu.scaled" -}}
{{- $values := .root.Values -}}
{{- $keda := .worker.keda -}}
{{- $name := .pod.name -}}
{{- if not .worker.queues -}}
{{- fail (printf "workers.%s: keda needs the names of its queues" .pod.component) -}}
{{- end -}}
{{- if and (eq $keda.by "stream") (not $values.keda.address) -}}
{{- fail "set keda.address to the HOST:PORT of the server" -}}
{{- end -}}
{{- if and (ne $keda.by "stream") (not $values.keda.prometheus) -}}
{{- fail "set keda.prometheus to the URL of Prometheus" -}}
{{- end -}}
{{- if and (eq $keda.by "age") (lt (int $keda.minReplicas) 1) -}}
{{- fail (printf "workers.%s: by age, keda.minReplicas must be at least 1" .pod.component) -}}
{{- end -}}
{{- if and (lt (int $keda.minReplicas) 1) (not $values.serveTime.enabled) -}}
{{- fail "set serveTime.enabled: while no worker runs, delayed jobs and schedules need it" -}}
{{- end }}
---
apiVersion: keda.sh/v1alpha1
kind: ScaledObject
metadata:
  name: {{ $name }}
  labels:
    {{- include "tampu.labels" .pod | nindent 4 }}
spec:
  scaleTargetRef:
    name: {{ $name }}
  minReplicaCount: {{ $keda.minReplicas }}
  maxReplicaCount: {{ $keda.maxReplicas }}
  pollingInterval: {{ $keda.pollingSeconds }}
  cooldownPeriod: {{ $keda.cooldownSeconds }}
  advanced:
    horizontalPodAutoscalerConfig:
      behavior:
        scaleDown:
          stabilizationWindowSeconds: {{ $keda.stabilizationSeconds }}
  triggers:
    {{- range .worker.queues }}
    {{- $queue := index (splitList "=" .) 0 }}
    {{- if eq $keda.by "stream" }}
    - type: redis-streams
      metadata:
        address: {{ $values.keda.address | quote }}
        stream: {{ printf "{chasqui:%s}:stream" $queue | quote }}
        streamLength: {{ $keda.target | quote }}
        databaseIndex: {{ $values.keda.database | quote }}
      {{- with $values.keda.authentication }}
      authenticationRef:
        name: {{ . }}
      {{- end }}
    {{- else }}
    - type: prometheus
      {{- if eq $keda.by "age" }}
      metricType: Value
      {{- end }}
      metadata:
        serverAddress: {{ $values.keda.prometheus | quote }}
        {{- if eq $keda.by "age" }}
        query: {{ printf "max(tampu_queue_oldest_seconds{queue=%q})" $queue | quote }}
        {{- else }}
        query: {{ printf "sum(max by (state) (tampu_queue_jobs{queue=%q,state=~%q}))" $queue "waiting|active" | quote }}
        {{- end }}
        threshold: {{ $keda.target | quote }}
    {{- end }}
    {{- end }}
{{- end -}}
