package local_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/spillway-lb/spillway/internal/admin"
	"github.com/spillway-lb/spillway/internal/testkit"
	"github.com/spillway-lb/spillway/local"
)

func TestFailedGPUQuarantinesOnlyItsWorker(t *testing.T) {
	var xid atomic.Pointer[string]
	setXID := func(s string) { xid.Store(&s) }
	setXID("0")
	exporter := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "DCGM_FI_DEV_FB_USED{gpu=\"0\"} 70000\nDCGM_FI_DEV_FB_FREE{gpu=\"0\"} 9000\nDCGM_FI_DEV_FB_USED{gpu=\"1\"} 70000\nDCGM_FI_DEV_FB_FREE{gpu=\"1\"} 9000\nDCGM_FI_DEV_XID_ERRORS{gpu=\"0\"} "+*xid.Load()+"\n")
	}))
	t.Cleanup(exporter.Close)
	x, y := newFakeVLLM(t, "x"), newFakeVLLM(t, "y")
	var cfg local.Config
	a := startAgent(t, func(c *local.Config) {
		c.Workers[0].GPUMetrics, c.Workers[0].GPUs = exporter.URL, []string{"0"}
		c.Workers[1].GPUMetrics, c.Workers[1].GPUs = exporter.URL+"/metrics", []string{"1"}
		cfg = *c
	}, x, y)
	testkit.Eventually(t, "the exporter is read", func() bool {
		return sumMetric(t, cfg, "spillway_local_worker_gpu_memory_used_bytes") == 2*70000<<20
	})
	setXID("31") // an application error, not a GPU fault
	testkit.Eventually(t, "the code is seen", func() bool { return sumMetric(t, cfg, "spillway_local_worker_gpu_xid") == 31 })
	if w := workerStatus(a, "x"); w.State != admin.StateReady {
		t.Errorf("an application error ejected the worker: %+v", w)
	}
	setXID("79") // GPU has fallen off the PCIe bus
	testkit.Eventually(t, "its worker is ejected", func() bool { return workerStatus(a, "x").State == admin.StateUnhealthy })
	if w := workerStatus(a, "x"); !strings.Contains(strings.ToLower(w.Reason), "gpu") {
		t.Errorf("the reason is %q", w.Reason)
	}
	if w := workerStatus(a, "y"); w.State != admin.StateReady {
		t.Errorf("the other worker is %+v", w)
	}
}
