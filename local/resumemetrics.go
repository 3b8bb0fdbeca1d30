package local

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/spillway-lb/spillway/internal/resume"
)

// newResumeCounter registers the counter of interrupted streams and the gauge of the text kept for them.
func newResumeCounter(r prometheus.Registerer, a *Agent) *prometheus.CounterVec {
	c := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "spillway_local_resumes_total",
		Help: "Streams whose worker failed, by outcome (resumed, ended: only the end was missing, failed, not: not attempted) and the reason if not resumed.",
	}, []string{"outcome", "reason"})
	r.MustRegister(c, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "spillway_local_resume_text_bytes", Help: "Text of open streams stored for resuming them, in bytes.",
	}, func() float64 { return float64(a.attempts.textStore.HeldBytes()) }))
	return c
}

func (m *agentMetrics) countResume(outcome string, why resume.NotResumableReason) {
	m.resumes.WithLabelValues(outcome, string(why)).Inc()
}
