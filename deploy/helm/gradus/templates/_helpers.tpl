{{/* An object's metadata: (list $ NAME [COMPONENT]), the component being the pods' label. */}}
{{- define "gradus.metadata" -}}
{{- $labels := dict "app.kubernetes.io/part-of" "gradus" -}}
{{- if gt (len .) 2 }}{{- $_ := set $labels "app.kubernetes.io/name" (index . 2) }}{{- end -}}
{{- toJson (dict "name" (index . 1) "namespace" (index . 0).Release.Namespace "labels" $labels) -}}
{{- end }}

{{/* Labels of a pod: (list COMPONENT [MORE]). */}}
{{- define "gradus.labels" -}}
{{- $labels := dict "app.kubernetes.io/part-of" "gradus" "app.kubernetes.io/name" (index . 0) -}}
{{- toJson (merge $labels (index (append . dict) 1)) -}}
{{- end }}

{{/* What every pod has: (dict "root" $ "pods" LIST ["user" UID] ["fsGroup" true] ["seccomp" PROFILE] ["labels" SELECTOR]).
Later ones of `pods` win. A selector spreads the pods that it names. */}}
{{- define "gradus.pod" -}}
{{- $user := .user | default 1000 -}}
{{- $security := dict "runAsNonRoot" true "runAsUser" $user "runAsGroup" $user -}}
{{- $_ := set $security "seccompProfile" (.seccomp | default (dict "type" "RuntimeDefault")) -}}
{{- if .fsGroup }}{{- $_ := set $security "fsGroup" $user }}{{- end -}}
{{- $pod := dict "automountServiceAccountToken" false "enableServiceLinks" false "securityContext" $security -}}
{{- range .root.Values.spread -}}
{{- if not $.labels }}{{ continue }}{{ end -}}
{{- $constraint := dict "maxSkew" 1 "topologyKey" . "whenUnsatisfiable" "ScheduleAnyway" -}}
{{- $_ := set $constraint "labelSelector" (dict "matchLabels" $.labels) -}}
{{- $_ := set $pod "topologySpreadConstraints" (append ($pod.topologySpreadConstraints | default list) $constraint) -}}
{{- end -}}
{{- range prepend .pods .root.Values.pod }}{{- $pod = mergeOverwrite $pod (deepCopy .) }}{{- end -}}
{{- toYaml $pod -}}
{{- end }}

{{/* The image and the security context of a container: (list $ IMAGE). */}}
{{- define "gradus.container" -}}
{{- $root := index . 0 -}}
image: {{ printf "%s%s" $root.Values.images.prefix (index . 1) }}{{ with $root.Values.images.tag }}:{{ . }}{{ end }}
securityContext: {{ include "gradus.confined" . }}
{{- end }}

{{- define "gradus.confined" -}}
{allowPrivilegeEscalation: false, readOnlyRootFilesystem: true, capabilities: {drop: [ALL]}}
{{- end }}

{{/* The volume of these files of the secret `gradus`: (dict KEY PATH ...), and of the CA of a managed Redis. */}}
{{- define "gradus.secrets" -}}
{{- $items := list -}}
{{- range $key, $path := .files }}{{- $items = append $items (dict "key" $key "path" $path) }}{{- end -}}
- {name: secrets, secret: {secretName: gradus, items: {{ toJson $items }}}}
{{- with .root.Values.redis.caSecret }}
- {name: redis-ca, secret: {secretName: {{ . }}}}
{{- end }}
{{- end }}

{{- define "gradus.secretMounts" -}}
- {name: secrets, mountPath: /run/secrets/gradus, readOnly: true}
{{- if .Values.redis.caSecret }}
- {name: redis-ca, mountPath: /run/secrets/redis-ca, readOnly: true}
{{- end }}
{{- end }}

{{/* Variables of API and graders. */}}
{{- define "gradus.tracing" -}}
{{- with .Values.tracing.endpoint }}
- {name: OTEL_EXPORTER_OTLP_ENDPOINT, value: {{ quote . }}}
{{- end }}
{{- end }}

{{/* A volume that pods on several nodes share: (list $ NAME). */}}
{{- define "gradus.claim" -}}
{{- $root := index . 0 }}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {{ include "gradus.metadata" . }}
spec:
  accessModes: [ReadWriteMany]
  {{- with $root.Values.storage.className }}
  storageClassName: {{ . }}
  {{- end }}
  resources: {requests: {storage: {{ $root.Values.storage.size }}}}
{{- end }}

{{/* Pods of one kind leave at most so many at a time: (list $ NAME NUMBER SELECTOR). */}}
{{- define "gradus.budget" }}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {{ include "gradus.metadata" (list (index . 0) (index . 1)) }}
spec:
  maxUnavailable: {{ index . 2 }}
  selector: {matchLabels: {{ toJson (index . 3) }}}
{{- end }}
