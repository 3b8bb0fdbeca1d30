package kube

import (
	"bytes"
	"context"
	"log/slog"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	dynamicfake "k8s.io/client-go/dynamic/fake"

	"github.com/spillway-lb/spillway/internal/config"
	"github.com/spillway-lb/spillway/internal/testkit"
	"github.com/spillway-lb/spillway/local/discover/kube/kubetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// watchedEntry is a running watcher and what it reported last.
type watchedEntry struct {
	*Watcher
	log lockedBuffer

	mu      sync.Mutex
	workers []config.WorkerEntry
	reports int
}

type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

func (e *watchedEntry) setWorkers(ws []config.WorkerEntry) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.workers = ws
	e.reports++
}

// describe returns the workers as "name@url", with a "!" after those that drain.
func (e *watchedEntry) describe() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	var out []string
	for _, w := range e.workers {
		s := w.Name + "@" + strings.TrimPrefix(w.URL, "http://")
		if w.DrainCause != "" {
			s += "!"
		}
		out = append(out, s)
	}
	return strings.Join(out, " ")
}

// first returns the first worker.
func (e *watchedEntry) first() config.WorkerEntry {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.workers[0]
}

func (e *watchedEntry) waitFor(t *testing.T, want string) {
	t.Helper()
	testkit.Eventually(t, "the workers "+want, func() bool { return e.describe() == want })
}

func (e *watchedEntry) waitForLog(t *testing.T, texts ...string) {
	t.Helper()
	for _, text := range texts {
		testkit.Eventually(t, "the log line with "+text, func() bool { return strings.Contains(e.log.String(), text) })
	}
}

func isNeverForbidden(netip.Addr) bool { return false }

// runWatcher runs a watcher until the test ends.
func runWatcher(t *testing.T, cfg config.KubernetesDiscovery, open func(e *watchedEntry, log *slog.Logger) *Watcher) *watchedEntry {
	t.Helper()
	e := &watchedEntry{}
	e.Watcher = open(e, slog.New(slog.NewTextHandler(&e.log, nil)))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		e.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	return e
}

// watchServer runs a watcher on a server.
func watchServer(t *testing.T, s *kubetest.Server, cfg config.KubernetesDiscovery) *watchedEntry {
	t.Helper()
	cfg.Kubeconfig, cfg.Scheme, cfg.Weight = s.Kubeconfig(), "http", 1
	return runWatcher(t, cfg, func(e *watchedEntry, log *slog.Logger) *Watcher {
		w, err := New(cfg, isNeverForbidden, log, e.setWorkers)
		if err != nil {
			t.Fatal(err)
		}
		return w
	})
}

// TestWorkersFollowEndpointSlices watches the slices of a Service through starts, ends and an absence of the API server.
func TestWorkersFollowEndpointSlices(t *testing.T) {
	s := kubetest.NewServer(t)
	a, b := kubetest.Endpoint("vllm-a", "10.0.0.1"), kubetest.Endpoint("vllm-b", "10.0.0.2")
	s.Put("endpointslices", kubetest.Slice("vllm-1", "vllm", 8000, a))
	s.Put("endpointslices", kubetest.Slice("other-1", "other", 8000, kubetest.Endpoint("other", "10.0.0.9")))
	e := watchServer(t, s, config.KubernetesDiscovery{Service: "vllm", GPU: "H100"})
	e.waitFor(t, "vllm-a@10.0.0.1:8000")
	if w := e.first(); w.GPU != "H100" || w.Labels["topology.kubernetes.io/zone"] != "z1" {
		t.Errorf("the worker is %+v", w)
	}
	s.Put("endpointslices", kubetest.Slice("vllm-2", "vllm", 9000, b))
	e.waitFor(t, "vllm-a@10.0.0.1:8000 vllm-b@10.0.0.2:9000")
	s.Put("endpointslices", kubetest.Slice("vllm-1", "vllm", 8000, kubetest.Terminating(a)))
	e.waitFor(t, "vllm-a@10.0.0.1:8000! vllm-b@10.0.0.2:9000")
	if st := e.Stats(); st.OutOfContact != 0 {
		t.Errorf("out of contact for %s while the server answers", st.OutOfContact)
	}

	s.Stop()
	testkit.Eventually(t, "the absence counted", func() bool { return e.Stats().OutOfContact > 0 && e.Stats().Failures[FailureUnreachable] > 1 })
	if got := e.describe(); got != "vllm-a@10.0.0.1:8000! vllm-b@10.0.0.2:9000" {
		t.Errorf("workers without the API server: %s", got)
	}
	if n := strings.Count(e.log.String(), "cannot be read"); n != 1 {
		t.Errorf("the absence is logged %d times:\n%s", n, e.log.String())
	}
	s.Delete("endpointslices", "vllm-1")
	s.Start()
	e.waitFor(t, "vllm-b@10.0.0.2:9000")
	testkit.Eventually(t, "contact again", func() bool { return e.Stats().OutOfContact == 0 })
	e.waitForLog(t, "answers again")

	s.Delete("endpointslices", "vllm-2")
	e.waitFor(t, "")
	e.waitForLog(t, "the Service has no endpoints: check that it exists in the namespace inference")
}

// TestPodsGiveDetails reads labels and annotations of pods next to the slices of their Service.
func TestPodsGiveDetails(t *testing.T) {
	s := kubetest.NewServer(t)
	p := kubetest.Pod("vllm-a", "10.0.0.1", map[string]string{"app": "vllm", "spillway/gpu": "H100", "spillway/engine": "vllm"})
	p.Annotations = map[string]string{"spillway/models": "org/m1, org/m2", "other/annotation": "x"}
	p.Spec.Containers[0].Resources.Limits = corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("4")}
	s.Put("pods", p)
	s.Put("pods", kubetest.Pod("web", "10.0.0.7", map[string]string{"app": "web"}))
	s.Put("endpointslices", kubetest.Slice("vllm-1", "vllm", 8000, kubetest.Endpoint("vllm-a", "10.0.0.1")))
	e := watchServer(t, s, config.KubernetesDiscovery{Service: "vllm", PodSelector: "app=vllm"})
	e.waitFor(t, "vllm-a@10.0.0.1:8000")
	w := e.first()
	if w.GPU != "H100x4" || strings.Join(w.Models, " ") != "org/m1 org/m2" || w.Engine != "vllm" || w.Labels["app"] != "vllm" {
		t.Errorf("the worker is %+v", w)
	}
}

// TestInferencePoolSelectsPods follows a pool through a change of its selector, a pool without pods, and its end.
func TestInferencePoolSelectsPods(t *testing.T) {
	s := kubetest.NewServer(t)
	s.Put("pods", kubetest.Pod("a", "10.0.0.1", map[string]string{"app": "a"}))
	s.Put("pods", kubetest.Pod("b", "10.0.0.2", map[string]string{"app": "b"}))
	e := watchServer(t, s, config.KubernetesDiscovery{InferencePool: "pool"})
	e.waitForLog(t, "no InferencePool pool: create it")
	s.Put("inferencepools", kubetest.Pool("pool", map[string]string{"app": "a"}, 8000, 8001))
	e.waitFor(t, "a-8000@10.0.0.1:8000 a-8001@10.0.0.1:8001")
	s.Put("inferencepools", kubetest.Pool("pool", map[string]string{"app": "b"}, 8000))
	e.waitFor(t, "b@10.0.0.2:8000")
	gone := kubetest.Pod("b", "10.0.0.2", map[string]string{"app": "b"})
	gone.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
	s.Put("pods", gone)
	e.waitFor(t, "b@10.0.0.2:8000!")
	s.Delete("pods", "b")
	e.waitFor(t, "")
	e.waitForLog(t, "the InferencePool selects no pod", "app=b")
	s.Put("pods", kubetest.Pod("b2", "10.0.0.3", map[string]string{"app": "b"}))
	e.waitFor(t, "b2@10.0.0.3:8000")
	s.Put("inferencepools", kubetest.Pool("pool", nil, 8000))
	e.waitForLog(t, "its selector has no matchLabels")
	if e.describe() != "b2@10.0.0.3:8000" {
		t.Errorf("an unusable pool removed the workers: %s", e.describe())
	}
}

// TestFailuresAdvise checks the message of each failure.
func TestFailuresAdvise(t *testing.T) {
	for _, c := range []struct {
		name, resource string
		status         int
		cfg            config.KubernetesDiscovery
		kind, want     string
	}{
		{"no permission", "endpointslices", http.StatusForbidden, config.KubernetesDiscovery{Service: "vllm"}, FailureForbidden, "get, list and watch on endpointslices.discovery.k8s.io in the namespace inference"},
		{"missing CRD", "inferencepools", http.StatusNotFound, config.KubernetesDiscovery{InferencePool: "p"}, FailureMissing, "install the CRDs of the Gateway API inference extension"},
		{"old API server", "endpointslices", http.StatusNotFound, config.KubernetesDiscovery{Service: "vllm"}, FailureMissing, "Kubernetes 1.21 or later"},
		{"credentials", "pods", http.StatusUnauthorized, config.KubernetesDiscovery{PodSelector: "app=x"}, FailureUnauthorized, "does not accept the credentials"},
		{"failing", "pods", http.StatusInternalServerError, config.KubernetesDiscovery{PodSelector: "app=x"}, FailureUnreachable, "check the API server"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := kubetest.NewServer(t)
			s.Refuse(c.resource, c.status)
			e := watchServer(t, s, c.cfg)
			e.waitForLog(t, c.want)
			if st := e.Stats(); st.Failures[c.kind] == 0 || st.OutOfContact == 0 {
				t.Errorf("the stats are %+v", st)
			}
		})
	}
}

// TestWatcherOnFakeClient runs on the fake of client-go, which has its own tracker of objects.
func TestWatcherOnFakeClient(t *testing.T) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, discoveryv1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	client := dynamicfake.NewSimpleDynamicClient(scheme, kubetest.Slice("s", "vllm", 8000, kubetest.Endpoint("a", "10.0.0.1")))
	cfg := config.KubernetesDiscovery{Service: "vllm", Scheme: "http", Weight: 1}
	e := runWatcher(t, cfg, func(e *watchedEntry, log *slog.Logger) *Watcher {
		return newWatcher(client, kubetest.Namespace, cfg, isNeverForbidden, log, e.setWorkers)
	})
	e.waitFor(t, "a@10.0.0.1:8000")
	if err := client.Resource(slicesResource).Namespace(kubetest.Namespace).Delete(t.Context(), "s", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	e.waitFor(t, "")
}

func TestNewExplainsMissingAccess(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	if _, err := New(config.KubernetesDiscovery{Service: "x"}, isNeverForbidden, slog.New(slog.DiscardHandler), nil); err == nil || !strings.Contains(err.Error(), "write kubeconfig: FILE") {
		t.Errorf("outside a pod: %v", err)
	}
	file := filepath.Join(t.TempDir(), "none")
	if _, err := New(config.KubernetesDiscovery{Service: "x", Kubeconfig: file}, isNeverForbidden, slog.New(slog.DiscardHandler), nil); err == nil || !strings.Contains(err.Error(), file) {
		t.Errorf("a missing kubeconfig: %v", err)
	}
	if err := os.WriteFile(file, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := New(config.KubernetesDiscovery{Service: "x", Kubeconfig: file}, isNeverForbidden, slog.New(slog.DiscardHandler), nil); err == nil {
		t.Error("a malformed kubeconfig is accepted")
	}
}
