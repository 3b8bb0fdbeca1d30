package podset

import (
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/spillway-lb/spillway/internal/config"
)

func isLinkLocal(a netip.Addr) bool { return a.IsLinkLocalUnicast() }

func newRules(change func(*Rules)) *Rules {
	r := &Rules{KubernetesDiscovery: config.KubernetesDiscovery{Scheme: "http", Weight: 1}, IsForbidden: isLinkLocal}
	if change != nil {
		change(r)
	}
	return r
}

func drawReports(t *rapid.T) []Endpoint {
	addresses := []string{"", "10.0.0.1", "10.0.0.2", "10.0.0.3", "169.254.169.254", "fd00::1", "fd00::2"}
	pick := func(from ...string) *rapid.Generator[string] { return rapid.SampledFrom(from) }
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) Endpoint {
		e := Endpoint{
			Pod: pick("", "a", "b", "c", "d", strings.Repeat("x", 70)).Draw(t, "pod"), Readiness: Readiness(rapid.IntRange(0, 2).Draw(t, "readiness")),
			Zone: pick("", "z1").Draw(t, "zone"), GPUs: rapid.IntRange(0, 8).Draw(t, "gpus"),
		}
		e.Address, _ = netip.ParseAddr(pick(addresses...).Draw(t, "address"))
		for _, p := range rapid.SliceOfN(rapid.Uint16Range(1, 3), 0, 3).Draw(t, "ports") {
			e.Ports = append(e.Ports, Port{Name: fmt.Sprint("p", p), Number: p})
		}
		if rapid.Bool().Draw(t, "labelled") {
			e.Labels = map[string]string{
				keyRole: pick("", "decode", "prefill").Draw(t, "role"), keyGPU: pick("", "H100", "H100x2").Draw(t, "gpu"),
				keyWeight: pick("", "2", "-1", "NaN", "x").Draw(t, "weight"), keyEngine: pick("", "vllm", "none").Draw(t, "engine"),
			}
		}
		return e
	}), 0, 12).Draw(t, "reports")
}

func drawRules(t *rapid.T) *Rules {
	return newRules(func(r *Rules) {
		r.Port = rapid.SampledFrom([]int{0, 0, 8000}).Draw(t, "port")
		r.PortName = rapid.SampledFrom([]string{"", "p1"}).Draw(t, "port name")
		r.Prefix = rapid.SampledFrom([]string{"", "east"}).Draw(t, "prefix")
		if rapid.Bool().Draw(t, "pool") {
			r.TargetPorts = []uint16{8000, 8001}
		}
	})
}

// TestWorkersAreWellFormed requires of any set of reports: names and URLs that are unique and usable, no forbidden address,
// and a drain for exactly the pods that are not ready.
func TestWorkersAreWellFormed(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		reports, rules := drawReports(t), drawRules(t)
		endpoints := MergeEndpoints(reports)
		workers, problems := rules.BuildWorkers(endpoints)
		ready := map[string]bool{}
		for _, e := range endpoints {
			if e.Readiness == Ready {
				ready[e.Address.String()] = true
			}
		}
		names, urls := map[string]bool{}, map[string]bool{}
		for _, w := range workers {
			at, err := netip.ParseAddrPort(strings.TrimPrefix(w.URL, "http://"))
			if err != nil || isLinkLocal(at.Addr()) {
				t.Fatalf("URL %q: %v", w.URL, err)
			}
			if names[w.Name] || urls[w.URL] || w.Name == "" || len(w.Name) > maxNameBytes {
				t.Fatalf("worker %q at %s is there twice, or its name is unusable", w.Name, w.URL)
			}
			names[w.Name], urls[w.URL] = true, true
			if (w.DrainCause == "") && !ready[at.Addr().String()] {
				t.Fatalf("worker %q takes requests, and no pod at %s is ready", w.Name, at.Addr())
			}
			if !(w.Weight > 0 && w.Weight <= 1000) || w.Engine == "none" || w.Labels[keyRole] == rolePrefill {
				t.Fatalf("worker %+v", w)
			}
		}
		for _, p := range problems {
			if !slices.Contains(Reasons(), p.Reason) || p.Text == "" || p.Pod == "" {
				t.Fatalf("problem %+v", p)
			}
		}
	})
}

// TestNoEndpointIsDropped requires that each endpoint is a worker or has a problem that explains why not: a terminating pod
// is drained and not dropped.
func TestNoEndpointIsDropped(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		endpoints := MergeEndpoints(drawReports(t))
		rules := drawRules(t)
		workers, problems := rules.BuildWorkers(endpoints)
		for _, e := range endpoints {
			found := slices.ContainsFunc(problems, func(p PodProblem) bool {
				return p.Pod == e.label() && p.Reason != ReasonValue && p.Reason != ReasonGPU
			})
			found = found || slices.ContainsFunc(workers, func(w config.WorkerEntry) bool {
				at, _ := netip.ParseAddrPort(strings.TrimPrefix(w.URL, "http://"))
				return at.Addr() == e.Address
			})
			if !found {
				t.Fatalf("endpoint %+v is neither a worker nor explained", e)
			}
		}
	})
}

// TestOrderDoesNotMatter requires the same result for any order of the reports, and when some of them arrive twice.
func TestOrderDoesNotMatter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		reports, rules := drawReports(t), drawRules(t)
		// Ports and labels of the reports of one pod differ only in this test: Kubernetes has one pod behind them.
		shuffled := rapid.Permutation(slices.Concat(reports, reports[:len(reports)/2])).Draw(t, "shuffled")
		w1, p1 := rules.BuildWorkers(MergeEndpoints(reports))
		w2, p2 := rules.BuildWorkers(MergeEndpoints(shuffled))
		if !reflect.DeepEqual(w1, w2) || !reflect.DeepEqual(p1, p2) {
			t.Fatalf("another order gives another result:\n%s", cmp.Diff(w1, w2)+cmp.Diff(p1, p2))
		}
	})
}

func TestPodSettings(t *testing.T) {
	at := netip.MustParseAddr("10.0.0.1")
	port := []Port{{"http", 8000}}
	for _, c := range []struct {
		name   string
		rules  func(*Rules)
		give   Endpoint
		want   config.WorkerEntry // Name empty: no worker
		reason string
	}{
		{"plain", func(r *Rules) { r.GPU = "L4" }, Endpoint{Pod: "a", Address: at, Ports: port, Readiness: Ready}, config.WorkerEntry{Name: "a", URL: "http://10.0.0.1:8000", Weight: 1, GPU: "L4"}, ""},
		{"without labels", nil, Endpoint{Pod: "a", Address: at, Ports: port, Readiness: Ready}, config.WorkerEntry{Name: "a", URL: "http://10.0.0.1:8000", Weight: 1}, ReasonGPU},
		{"terminating", func(r *Rules) { r.GPU = "L4" }, Endpoint{Pod: "a", Address: at, Ports: port, Readiness: Terminating}, config.WorkerEntry{Name: "a", URL: "http://10.0.0.1:8000", Weight: 1, GPU: "L4", DrainCause: "its pod is terminating"}, ""},
		{
			"annotation before label", nil,
			Endpoint{Pod: "a", Address: at, Ports: port, Readiness: Ready, GPUs: 2, Labels: map[string]string{keyGPU: "L4"}, Annotations: map[string]string{keyGPU: "H100"}},
			config.WorkerEntry{Name: "a", URL: "http://10.0.0.1:8000", Weight: 1, GPU: "H100x2", Labels: map[string]string{keyGPU: "L4"}},
			"",
		},
		{"count given", func(r *Rules) { r.GPU = "H100x4" }, Endpoint{Pod: "a", Address: at, Ports: port, Readiness: Ready, GPUs: 8}, config.WorkerEntry{Name: "a", URL: "http://10.0.0.1:8000", Weight: 1, GPU: "H100x4"}, ""},
		{"no address", nil, Endpoint{Pod: "a", Ports: port}, config.WorkerEntry{}, ReasonAddress},
		{"metadata service", nil, Endpoint{Pod: "a", Address: netip.MustParseAddr("169.254.169.254"), Ports: port}, config.WorkerEntry{}, ReasonAddress},
		{"two ports", nil, Endpoint{Pod: "a", Address: at, Ports: []Port{{"http", 8000}, {"grpc", 9000}}}, config.WorkerEntry{}, ReasonPort},
		{"no such port", func(r *Rules) { r.PortName = "web" }, Endpoint{Pod: "a", Address: at, Ports: port}, config.WorkerEntry{}, ReasonPort},
		{"prefill", nil, Endpoint{Pod: "a", Address: at, Ports: port, Labels: map[string]string{keyLLMDRole: "prefill"}}, config.WorkerEntry{}, ReasonRole},
		{"role not listed", func(r *Rules) { r.Roles = []string{"decode"} }, Endpoint{Pod: "a", Address: at, Ports: port, Labels: map[string]string{keyRole: "both"}}, config.WorkerEntry{}, ReasonRole},
		{
			"bad weight", func(r *Rules) { r.GPU = "L4" },
			Endpoint{Pod: "a", Address: at, Ports: port, Readiness: Ready, Annotations: map[string]string{keyWeight: "heavy"}},
			config.WorkerEntry{Name: "a", URL: "http://10.0.0.1:8000", Weight: 1, GPU: "L4"},
			ReasonValue,
		},
		{"IPv6 without a pod", func(r *Rules) { r.GPU = "L4" }, Endpoint{Address: netip.MustParseAddr("fd00::1"), Ports: port, Readiness: Ready}, config.WorkerEntry{Name: "pod-fd00-0000-0000-0000-0000-0000-0000-0001-8000", URL: "http://[fd00::1]:8000", Weight: 1, GPU: "L4"}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			workers, problems := newRules(c.rules).BuildWorkers(MergeEndpoints([]Endpoint{c.give}))
			var want []config.WorkerEntry
			if c.want.Name != "" {
				want = []config.WorkerEntry{c.want}
			}
			if diff := cmp.Diff(want, workers); diff != "" {
				t.Errorf("workers (-want +got):\n%s", diff)
			}
			got := ""
			for _, p := range problems {
				got += p.Reason
			}
			if got != c.reason {
				t.Errorf("problems %+v, want reason %q", problems, c.reason)
			}
		})
	}
}

// TestAddressPassesToNewPod gives an address to the pod that is ready while an old pod with it terminates.
func TestAddressPassesToNewPod(t *testing.T) {
	at, port := netip.MustParseAddr("10.0.0.1"), []Port{{"http", 8000}}
	workers, problems := newRules(nil).BuildWorkers(MergeEndpoints([]Endpoint{
		{Pod: "a-old", Address: at, Ports: port, Readiness: Terminating}, {Pod: "b-new", Address: at, Ports: port, Readiness: Ready},
	}))
	if len(workers) != 1 || workers[0].Name != "b-new" || len(problems) == 0 {
		t.Errorf("workers %+v, problems %+v", workers, problems)
	}
}

func TestReadinessOf(t *testing.T) {
	yes, no := true, false
	for _, c := range []struct {
		ready, terminating *bool
		want               Readiness
	}{{nil, nil, Ready}, {&yes, nil, Ready}, {&no, nil, NotReady}, {&yes, &no, Ready}, {&yes, &yes, Terminating}, {nil, &yes, Terminating}} {
		if got := ReadinessOf(c.ready, c.terminating); got != c.want {
			t.Errorf("%v %v: %d, want %d", c.ready, c.terminating, got, c.want)
		}
	}
}

func TestBoundOfWorkers(t *testing.T) {
	var reports []Endpoint
	for i := range MaxWorkers + 3 {
		reports = append(reports, Endpoint{Pod: fmt.Sprint("p", i), Address: netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)}), Ports: []Port{{"", 80}}, Readiness: Ready})
	}
	workers, problems := newRules(func(r *Rules) { r.GPU = "L4" }).BuildWorkers(MergeEndpoints(reports))
	if len(workers) != MaxWorkers || len(problems) != 3 || problems[0].Reason != ReasonBound {
		t.Errorf("%d workers, %d problems", len(workers), len(problems))
	}
}
