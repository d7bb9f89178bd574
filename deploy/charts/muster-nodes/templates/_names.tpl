{{- define "muster-nodes.labels" -}}
app: {{ .Release.Name }}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end -}}

{{- /* Values are read as floating-point numbers, and 1000000 must not become 1e+06. */ -}}
{{- define "muster-nodes.settings" -}}
{{- range $name, $value := .Values.settings }}
{{ $name }}: {{ if and (kindIs "float64" $value) (eq (floor $value) $value) }}{{ $value | int64 | toString | quote }}{{ else }}{{ $value | toString | quote }}{{ end }}
{{- end }}
{{- end -}}
