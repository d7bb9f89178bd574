package defender

import (
	"encoding/json"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/muster-dev/muster/partition"
)

// HTTP serves what operators and Kubernetes ask of a defender: /health/live
// (200 while the process runs), /health/ready (200 while it takes part in its
// group; see partition.Worker.ReadyHandler), /metrics and /api/v1/status.
func HTTP(w *partition.Worker, reg prometheus.Gatherer) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /health/live", func(rw http.ResponseWriter, _ *http.Request) { writeStatus(rw, http.StatusOK, "live") })
	mux.Handle("GET /health/ready", w.ReadyHandler())
	mux.HandleFunc("GET /api/v1/status", func(rw http.ResponseWriter, _ *http.Request) { writeJSON(rw, http.StatusOK, w.Status()) })
	mux.Handle("GET /metrics", promhttp.HandlerFor(reg, promhttp.HandlerOpts{}))
	return mux
}

func writeStatus(rw http.ResponseWriter, code int, status string) {
	writeJSON(rw, code, map[string]string{"status": status})
}

func writeJSON(rw http.ResponseWriter, code int, v any) {
	rw.Header().Set("Content-Type", "application/json")
	rw.WriteHeader(code)
	_ = json.NewEncoder(rw).Encode(v)
}
