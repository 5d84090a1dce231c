{{- define "punctual.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else if contains .Chart.Name .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name .Chart.Name | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- /* Names of cluster-wide objects carry the namespace: two releases of one name may stand side by side. */ -}}
{{- define "punctual.clusterName" -}}
{{- $name := include "punctual.fullname" . -}}
{{- if eq $name .Release.Namespace }}{{ $name }}{{ else }}{{ printf "%s-%s" .Release.Namespace $name }}{{ end -}}
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
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}

{{- /* Whether monitors are wanted; empty: no. The argument is (context, kind). */ -}}
{{- define "punctual.monitors" -}}
{{- $wish := .context.Values.monitoring.monitors -}}
{{- $there := .context.Capabilities.APIVersions.Has (printf "monitoring.coreos.com/v1/%s" .kind) -}}
{{- if or (eq $wish "Always") (and (eq $wish "Auto") $there) }}yes{{ end -}}
{{- end -}}
