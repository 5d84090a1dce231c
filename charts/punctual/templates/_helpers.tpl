{{- /* The name is that of a Service, too: without the dots that the name of a release may have. */ -}}
{{- define "punctual.fullname" -}}
{{- $name := printf "%s-%s" .Release.Name .Chart.Name -}}
{{- if contains .Chart.Name .Release.Name }}{{ $name = .Release.Name }}{{ end -}}
{{- .Values.fullnameOverride | default $name | replace "." "-" | trunc 40 | trimAll "-" -}}
{{- end -}}

{{- /* Names of cluster-wide objects carry the namespace: two releases of one name may stand side by side. */ -}}
{{- define "punctual.clusterName" -}}
{{- $name := include "punctual.fullname" . -}}
{{- if eq $name .Release.Namespace }}{{ $name }}{{ else }}{{ printf "%s-%s" .Release.Namespace $name | trimPrefix "-" }}{{ end -}}
{{- end -}}

{{- /* The default again: `helm upgrade --reuse-values` knows only the values of the earlier chart. */ -}}
{{- define "punctual.claimNamespace" -}}
{{ .Values.operator.claimNamespace | default "kube-system" }}
{{- end -}}

{{- define "punctual.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "punctual.labels" -}}
{{ include "punctual.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{- define "punctual.image" -}}
{{ .Values.image.repository }}
{{- with .Values.image.digest }}@{{ . }}{{ else }}:{{ .Values.image.tag | default .Chart.AppVersion }}{{ end }}
{{- end -}}

{{- /* No name of a class may begin with "system-", as that of a namespace may. */ -}}
{{- define "punctual.placeholderClass" -}}
placeholders-{{ include "punctual.clusterName" . }}
{{- end -}}

{{- define "punctual.chunkClass" -}}
chunks-{{ include "punctual.clusterName" . }}
{{- end -}}

{{- /* Account, place and rights of the pods of the operator and of its uninstallation. */ -}}
{{- define "punctual.operatorPlace" -}}
serviceAccountName: {{ include "punctual.fullname" . }}-operator
{{- with .Values.imagePullSecrets }}
imagePullSecrets: {{ toYaml . | nindent 2 }}
{{- end }}
# above placeholders: otherwise it could not return when they keep all capacity
priorityClassName: {{ .Values.operator.priorityClassName | default (include "punctual.chunkClass" .) }}
{{- with .Values.operator.nodeSelector }}
nodeSelector: {{ toYaml . | nindent 2 }}
{{- end }}
tolerations:
  # the nodes of a pool with `hold: Taint`: if all nodes were held, it could not return to remove a taint
  - {key: punctual.dev/pool, operator: Exists}
  {{- with .Values.operator.tolerations }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
securityContext:
  runAsNonRoot: true
  runAsUser: 65532
  runAsGroup: 65532
  seccompProfile: {type: RuntimeDefault}
{{- end -}}

{{- /* What the operator must know to keep room: see operator/punctual/kube/actors/placeholders.py. */ -}}
{{- define "punctual.placeholder" -}}
priority: {{ .Values.placeholder.priority }}
chunkClass: {{ include "punctual.chunkClass" . }}
spec:
  priorityClassName: {{ include "punctual.placeholderClass" . }}
  automountServiceAccountToken: false
  enableServiceLinks: false
  terminationGracePeriodSeconds: 1 # not 0: its capacity is free only when the kubelet confirms the end
  {{- with .Values.imagePullSecrets }}
  imagePullSecrets: {{ toJson . }}
  {{- end }}
  securityContext: {runAsNonRoot: true, runAsUser: 65532, runAsGroup: 65532, seccompProfile: {type: RuntimeDefault}}
  containers:
    - name: placeholder
      {{- with .Values.placeholder.image }}
      image: {{ . }}
      {{- else }}
      image: {{ include "punctual.image" . }}
      command: [sh, -c, "trap 'exit 0' TERM; sleep infinity & wait"] # sleep alone would not end at the signal
      {{- end }}
      imagePullPolicy: {{ .Values.image.pullPolicy }}
      securityContext: {allowPrivilegeEscalation: false, readOnlyRootFilesystem: true, capabilities: {drop: [ALL]}}
{{- end -}}

{{- /* Whether monitors are wanted; empty: no. The argument is (context, kind). */ -}}
{{- define "punctual.monitors" -}}
{{- $wish := .context.Values.monitoring.monitors -}}
{{- $there := .context.Capabilities.APIVersions.Has (printf "monitoring.coreos.com/v1/%s" .kind) -}}
{{- if or (eq $wish "Always") (and (eq $wish "Auto") $there) }}yes{{ end -}}
{{- end -}}
