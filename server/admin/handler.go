package admin

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// index is what / shows.
const index = `stint, for operators:

/metrics   figures for Prometheus
/readyz    200 if decisions can be made through this node, else 503 and why
/healthz   200 while the process runs
`

// handler answers the four paths.
type handler struct {
	source  Source
	metrics http.Handler
	log     *slog.Logger
	crowded func() bool // connections are many: none is kept after its answer
}

// newHandler makes the handler with a registry of its own.
func newHandler(source Source, log *slog.Logger, crowded func() bool) (http.Handler, error) {
	reg := prometheus.NewRegistry()
	for _, c := range []prometheus.Collector{
		newCollector(source),
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	} {
		if err := reg.Register(c); err != nil {
			return nil, fmt.Errorf("admin: register the metrics: %w", err)
		}
	}
	return &handler{
		source: source, log: log, crowded: crowded,
		metrics: promhttp.HandlerFor(reg, promhttp.HandlerOpts{
			ErrorLog: promLog{log},
			// The figures that could be read are worth more than none: alerts go
			// on, and the count of errors is among them.
			ErrorHandling: promhttp.ContinueOnError,
			Registry:      reg,
			// Counting keys walks over all of them: those who ask at the same
			// time share one walk.
			CoalesceGather: true,
		}),
	}, nil
}

// ServeHTTP compares the path as it is: a mux would clean it and redirect, which
// probers read as a failure.
func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	defer h.guard(w, r)
	header := w.Header()
	header.Set("Cache-Control", "no-store")
	header.Set("X-Content-Type-Options", "nosniff")
	if h.crowded() {
		header.Set("Connection", "close")
	}
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		header.Set("Allow", "GET, HEAD")
		answer(w, http.StatusMethodNotAllowed, "only GET and HEAD are served here: nothing can be changed by HTTP\n")
		return
	}
	switch r.URL.Path {
	case "/metrics":
		h.metrics.ServeHTTP(w, r)
	case "/healthz":
		// Nothing is asked: a process that waits for its disk or its cluster is
		// alive, and a restart would not help it.
		answer(w, http.StatusOK, "ok\n")
	case "/readyz":
		if why := readiness(h.source); why != "" {
			answer(w, http.StatusServiceUnavailable, why+"\n")
			return
		}
		answer(w, http.StatusOK, "ok\n")
	case "/":
		answer(w, http.StatusOK, index)
	default:
		answer(w, http.StatusNotFound, "there is no such path: want /metrics, /readyz or /healthz\n")
	}
}

// guard turns a panic of the Source into an answer and a line of the log: what
// net/http logs of it is of level debug here.
func (h *handler) guard(w http.ResponseWriter, r *http.Request) {
	fault := recover()
	switch fault {
	case nil:
	case http.ErrAbortHandler:
		panic(fault)
	default:
		h.log.Error("a request of an operator panicked: a fault of stint, please report it", "path", r.URL.Path, "fault", fmt.Sprint(fault))
		answer(w, http.StatusInternalServerError, "a fault of stint: the log has it\n")
	}
}

// readiness is why the source is not ready, in one line, "" if it is.
func readiness(source Source) (why string) {
	ok, why := source.Ready()
	if ok {
		return ""
	}
	if why = strings.Join(strings.Fields(why), " "); why == "" {
		return "no decision can be made through this node now"
	}
	return why
}

func answer(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, text) // a client that is gone needs no answer
}

// promLog passes on what promhttp has to say.
type promLog struct{ log *slog.Logger }

func (l promLog) Println(v ...any) {
	l.log.Warn("some metrics could not be served", "error", strings.TrimSuffix(fmt.Sprintln(v...), "\n"))
}
