package local_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/spillway-lb/spillway/internal/admin"
	"github.com/spillway-lb/spillway/local"
)

func TestADyingGPUTakesItsWorkerOutAndNoOther(t *testing.T) {
	var xid atomic.Pointer[string]
	say := func(s string) { xid.Store(&s) }
	say("0")
	exporter := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "DCGM_FI_DEV_FB_USED{gpu=\"0\"} 70000\nDCGM_FI_DEV_FB_FREE{gpu=\"0\"} 9000\nDCGM_FI_DEV_FB_USED{gpu=\"1\"} 70000\nDCGM_FI_DEV_FB_FREE{gpu=\"1\"} 9000\nDCGM_FI_DEV_XID_ERRORS{gpu=\"0\"} "+*xid.Load()+"\n")
	}))
	t.Cleanup(exporter.Close)
	x, y := newVLLM(t, "x"), newVLLM(t, "y")
	var cfg local.Config
	a := start(t, func(c *local.Config) {
		c.Workers[0].GPUMetrics, c.Workers[0].GPUs = exporter.URL, []string{"0"}
		c.Workers[1].GPUMetrics, c.Workers[1].GPUs = exporter.URL+"/metrics", []string{"1"}
		cfg = *c
	}, x, y)
	eventually(t, "the exporter is read", func() bool {
		return gathered(t, cfg, "spillway_local_worker_gpu_memory_used_bytes") == 2*70000<<20
	})
	say("31") // a program's own fault
	eventually(t, "the code is seen", func() bool { return gathered(t, cfg, "spillway_local_worker_gpu_xid") == 31 })
	if w := status(a, "x"); w.State != admin.StateReady {
		t.Errorf("a program's own fault took the worker out: %+v", w)
	}
	say("79") // fallen off the bus
	eventually(t, "its worker is out", func() bool { return status(a, "x").State == admin.StateSick })
	if w := status(a, "x"); !strings.Contains(strings.ToLower(w.Reason), "gpu") {
		t.Errorf("the reason is %q", w.Reason)
	}
	if w := status(a, "y"); w.State != admin.StateReady {
		t.Errorf("the other worker is %+v", w)
	}
}
