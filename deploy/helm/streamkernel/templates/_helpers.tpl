{{- define "streamkernel.name" -}}
{{- if contains .Chart.Name .Release.Name }}{{ .Release.Name | trunc 52 | trimSuffix "-" }}{{ else }}{{ printf "%s-%s" .Release.Name .Chart.Name | trunc 52 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "streamkernel.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{/* Others than those of the members, whose services must not select these pods. */}}
{{- define "streamkernel.serve.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}-serve
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "streamkernel.serve.labels" -}}
{{ include "streamkernel.serve.selector" . }}
app.kubernetes.io/version: {{ .Values.image.tag | default .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- define "streamkernel.labels" -}}
{{ include "streamkernel.selector" . }}
app.kubernetes.io/version: {{ .Values.image.tag | default .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- define "streamkernel.image" -}}
{{- if .Values.image.digest }}{{ .Values.image.repository }}@{{ .Values.image.digest }}{{ else }}{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}{{ end }}
{{- end }}

{{/* The lines of the configuration that the pod depends on: without them the state would be lost, or the probes would fail. */}}
{{- define "streamkernel.config" -}}
{{- range list `directory = "/var/lib/streamkernel/state"` "port = 9464" `host = "0.0.0.0"` }}
{{- if not (regexMatch (printf `(?m)^%s\s*(#.*)?$` (regexQuoteMeta .)) $.Values.config) }}
{{- fail (printf "config: expected the line %s, which the volume and the probes of the pod depend on" .) }}
{{- end }}
{{- end }}
{{- .Values.config }}
{{- end }}
