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

{{/* A cluster has one driver, which alone has state. */}}
{{- define "streamkernel.replicas" -}}
{{- if and .Values.cluster.enabled (gt (int .Values.replicas) 1) }}
{{- fail "replicas: expected 1 with cluster.enabled, which has one driver; cluster.workers.replicas is the number of workers" }}
{{- end }}
{{- .Values.replicas }}
{{- end }}

{{- define "streamkernel.cluster.name" -}}
{{ include "streamkernel.name" . | trunc 40 | trimSuffix "-" }}-ray
{{- end }}

{{/* The service of the head, which the operator names. */}}
{{- define "streamkernel.cluster.address" -}}
ray://{{ include "streamkernel.cluster.name" . }}-head-svc.{{ .Release.Namespace }}.svc:10001
{{- end }}

{{/* The variables of all nodes and of the driver. Those of the token are no envFrom, which the operator does not copy to the container that waits for the head. */}}
{{- define "streamkernel.cluster.env" -}}
- {name: RAY_USAGE_STATS_ENABLED, value: "0"}
{{- if .Values.cluster.authentication }}
- {name: RAY_AUTH_MODE, value: token}
- name: RAY_AUTH_TOKEN
  valueFrom:
    secretKeyRef: {name: {{ required "secret: expected a Secret with the key RAY_AUTH_TOKEN for cluster.authentication, got none" .Values.secret }}, key: RAY_AUTH_TOKEN}
{{- end }}
{{- end }}

{{/* The pod of a node of the cluster: (dict "top" $ "group" its values "ports" its ports, the first of which its probes use). */}}
{{- define "streamkernel.cluster.pod" -}}
{{- $values := .top.Values -}}
metadata:
  labels:
    app.kubernetes.io/instance: {{ .top.Release.Name }}
    {{- with $values.podLabels }}{{ toYaml . | nindent 4 }}{{ end }}
  {{- with $values.podAnnotations }}
  annotations: {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  automountServiceAccountToken: false
  {{- with $values.serviceAccountName }}
  serviceAccountName: {{ . }}
  {{- end }}
  {{- with $values.image.pullSecrets }}
  imagePullSecrets: {{- toYaml . | nindent 4 }}
  {{- end }}
  securityContext:
    runAsNonRoot: true
    runAsUser: 10001
    runAsGroup: 10001
    fsGroup: 10001
    seccompProfile: {type: RuntimeDefault}
  containers:
    - name: ray
      image: {{ include "streamkernel.image" .top }}
      imagePullPolicy: {{ $values.image.pullPolicy }}
      env: {{- include "streamkernel.cluster.env" .top | nindent 8 }}
      {{- with $values.secret }}
      envFrom:
        - secretRef: {name: {{ . }}}
      {{- end }}
      ports: {{- toYaml .ports | nindent 8 }}
      startupProbe:
        tcpSocket: {port: {{ (first .ports).name }}}
        periodSeconds: 5
        failureThreshold: 60
      livenessProbe: # those of the operator need the dashboard; a node whose processes end, ends by itself
        tcpSocket: {port: {{ (first .ports).name }}}
        periodSeconds: 15
        timeoutSeconds: 5
        failureThreshold: 4
      readinessProbe:
        tcpSocket: {port: {{ (first .ports).name }}}
        periodSeconds: 5
        timeoutSeconds: 5
      resources: {{- toYaml .group.resources | nindent 8 }}
      securityContext:
        allowPrivilegeEscalation: false
        readOnlyRootFilesystem: true
        capabilities: {drop: [ALL]}
      volumeMounts:
        - {name: tmp, mountPath: /tmp}
        {{- with $values.volumeMounts }}{{ toYaml . | nindent 8 }}{{ end }}
  volumes:
    - name: tmp
      emptyDir: {}
    {{- with $values.volumes }}{{ toYaml . | nindent 4 }}{{ end }}
  {{- with $values.nodeSelector }}
  nodeSelector: {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $values.tolerations }}
  tolerations: {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $values.affinity }}
  affinity: {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end }}
