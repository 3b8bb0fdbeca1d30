package podset

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/spillway-lb/spillway/internal/config"
)

// Names of labels and annotations of pods. An annotation takes precedence, because it may hold any text.
const (
	keyGPU    = "spillway/gpu"    // type and number of GPUs, such as H100x4
	keyModels = "spillway/models" // served models, with commas between them
	keyWeight = "spillway/weight" // relative share, for policies with weights
	keyEngine = "spillway/engine" // name of the engine
	keyRole   = "spillway/role"   // role in disaggregated serving: prefill, decode or both
	// keyLLMDRole is the label of llm-d for the same.
	keyLLMDRole = "llm-d.ai/role"
	// labelZone is the label that a worker gets from its endpoint's zone.
	labelZone = "topology.kubernetes.io/zone"
)

// rolePrefill is the role of pods that compute prompts for others: they take requests from their peers only.
const rolePrefill = "prefill"

// Reasons why a pod is left out; they label a metric.
const (
	ReasonAddress = "address" // it has none, or one where no worker may be
	ReasonPort    = "port"    // the port cannot be determined
	ReasonRole    = "role"    // its role is not accepted
	ReasonName    = "name"    // another pod has its name or address
	ReasonBound   = "bound"   // MaxWorkers is reached
	ReasonGPU     = "gpu"     // the type of its GPUs is unknown; the pod is a worker all the same
	ReasonValue   = "value"   // a label or an annotation cannot be used; the pod itself may be a worker
)

// Reasons lists all reasons.
func Reasons() []string {
	return []string{ReasonAddress, ReasonBound, ReasonGPU, ReasonName, ReasonPort, ReasonRole, ReasonValue}
}

// PodProblem is something about a pod that an operator may want to change.
type PodProblem struct {
	Pod    string
	Reason string // one of Reasons
	Text   string // what is wrong, its effect, and what to do
}

// Rules are the rules of one entry of discover.kubernetes.
type Rules struct {
	config.KubernetesDiscovery
	// TargetPorts are those of an InferencePool: each is a worker. They replace the entry's port.
	TargetPorts []uint16
	// IsForbidden reports whether no worker may be at an address.
	IsForbidden func(netip.Addr) bool
}

// BuildWorkers returns the workers that the endpoints make, ordered by name, and what is wrong with the others. Its
// endpoints come from MergeEndpoints.
func (r *Rules) BuildWorkers(endpoints []Endpoint) ([]config.WorkerEntry, []PodProblem) {
	b := workerBuild{rules: r, names: map[string]bool{}, addresses: map[string]bool{}}
	// An address may pass from a terminating pod to a new one: the pod that takes requests has it.
	for _, accept := range []func(*Endpoint) bool{isReady, isNotReady} {
		for i := range endpoints {
			if accept(&endpoints[i]) {
				b.addEndpoint(&endpoints[i])
			}
		}
	}
	slices.SortFunc(b.workers, func(x, y config.WorkerEntry) int { return strings.Compare(x.Name, y.Name) })
	slices.SortFunc(b.problems, func(x, y PodProblem) int {
		return cmp.Or(strings.Compare(x.Pod, y.Pod), strings.Compare(x.Text, y.Text))
	})
	return b.workers, b.problems
}

func isReady(e *Endpoint) bool    { return e.Readiness == Ready }
func isNotReady(e *Endpoint) bool { return e.Readiness != Ready }

// workerBuild is the state of one BuildWorkers.
type workerBuild struct {
	rules            *Rules
	workers          []config.WorkerEntry
	problems         []PodProblem
	names, addresses map[string]bool
}

func (b *workerBuild) addProblem(e *Endpoint, reason, format string, args ...any) {
	b.problems = append(b.problems, PodProblem{Pod: e.label(), Reason: reason, Text: fmt.Sprintf(format, args...)})
}

func (b *workerBuild) addEndpoint(e *Endpoint) {
	role := cmp.Or(e.text(keyRole), e.Labels[keyLLMDRole])
	switch {
	case !e.Address.IsValid():
		b.addProblem(e, ReasonAddress, "the pod has no address yet: it is left out until it has one")
		return
	case b.rules.IsForbidden(e.Address):
		b.addProblem(e, ReasonAddress, "workers are not allowed at %s, which is link-local, multicast, unspecified or a cloud's metadata: correct the EndpointSlice", e.Address)
		return
	case !b.rules.acceptsRole(role):
		b.addProblem(e, ReasonRole, "its role %q is not among the accepted ones: add it to roles if it serves requests of clients", role)
		return
	}
	ports, why := b.rules.choosePorts(e)
	if why != "" {
		b.addProblem(e, ReasonPort, "%s", why)
		return
	}
	for _, port := range ports {
		b.addWorker(e, port, len(ports) > 1)
	}
}

// addWorker adds the worker at one port of an endpoint.
func (b *workerBuild) addWorker(e *Endpoint, port uint16, several bool) {
	at := netip.AddrPortFrom(e.Address, port)
	name := b.rules.workerName(e, port, several)
	switch {
	case b.names[name], b.addresses[at.String()]:
		b.addProblem(e, ReasonName, "another pod has its name or its address %s: it is left out until that pod is gone", at)
		return
	case len(b.workers) >= MaxWorkers:
		b.addProblem(e, ReasonBound, "an entry takes %d workers: split the zone, or select fewer pods", MaxWorkers)
		return
	}
	b.names[name], b.addresses[at.String()] = true, true
	w := b.rules.newWorker(e, at)
	w.Name = name
	b.applyPodSettings(e, &w)
	b.workers = append(b.workers, w)
}

// newWorker is the worker at an address with the settings of the entry.
func (r *Rules) newWorker(e *Endpoint, at netip.AddrPort) config.WorkerEntry {
	w := config.WorkerEntry{
		URL: r.Scheme + "://" + at.String(), GPU: r.GPU, Models: r.Models, Weight: r.Weight, Engine: r.Engine, Wake: r.Wake,
		MaxModels: r.MaxModels, Labels: r.workerLabels(e), DrainCause: drainCause(e.Readiness),
	}
	w.SetAccess(r.Access())
	if r.Scheme == "https" {
		w.ServerName = r.ServerName
	}
	page := func(port int) string {
		if port == 0 {
			return ""
		}
		return fmt.Sprintf("http://%s/metrics", netip.AddrPortFrom(e.Address, uint16(port)))
	}
	w.Metrics, w.GPUMetrics = page(r.MetricsPort), page(r.GPUMetricsPort)
	stream := func(port int) []string {
		if port == 0 {
			return nil
		}
		return []string{"tcp://" + netip.AddrPortFrom(e.Address, uint16(port)).String()}
	}
	w.KVEvents, w.KVReplay = stream(r.KVEventsPort), stream(r.KVReplayPort)
	return w
}

func drainCause(r Readiness) string {
	return [...]string{NotReady: "its pod is not ready", Ready: "", Terminating: "its pod is terminating"}[r]
}

// applyPodSettings applies labels and annotations of the pod. A value that cannot be used is reported and ignored.
func (b *workerBuild) applyPodSettings(e *Endpoint, w *config.WorkerEntry) {
	if gpu := e.text(keyGPU); len(gpu) <= 64 {
		w.GPU = withGPUCount(cmp.Or(gpu, w.GPU), e.GPUs)
	} else {
		b.addProblem(e, ReasonValue, "%s has more than 64 bytes: the value is ignored", keyGPU)
	}
	if w.GPU == "" {
		b.addProblem(e, ReasonGPU, "the type of its GPUs is unknown, and routing assumes a slow GPU until it has measured the worker: label or annotate the pod with %s: H100, or set gpu", keyGPU)
	}
	if models := splitList(e.text(keyModels)); len(models) > maxModels || slices.ContainsFunc(models, isBadModel) {
		b.addProblem(e, ReasonValue, "%s lists more than %d models, or one that is longer than 253 bytes or holds control characters: the value is ignored", keyModels, maxModels)
	} else if len(models) > 0 {
		w.Models = models
	}
	if text := e.text(keyWeight); text != "" {
		if weight, err := strconv.ParseFloat(text, 64); err == nil && weight > 0 && weight <= 1000 {
			w.Weight = weight
		} else {
			b.addProblem(e, ReasonValue, "%s is %q and not a number between 0 and 1000: the value is ignored", keyWeight, clipText(text))
		}
	}
	if text := e.text(keyEngine); text != "" {
		if slices.Contains(config.EngineNames(), text) {
			w.Engine = text
		} else {
			b.addProblem(e, ReasonValue, "%s is %q, which is no engine: the value is ignored; write one of %s", keyEngine, clipText(text), strings.Join(config.EngineNames(), ", "))
		}
	}
}

func isBadModel(m string) bool { return len(m) > 253 || strings.ContainsFunc(m, unicode.IsControl) }

func splitList(s string) (out []string) {
	for item := range strings.SplitSeq(s, ",") {
		if item = strings.TrimSpace(item); item != "" {
			out = append(out, item)
		}
	}
	return out
}

func clipText(s string) string { return s[:min(len(s), 64)] }

// withGPUCount appends the number of GPUs to a type without one: H100 with 4 GPUs is H100x4.
func withGPUCount(gpu string, count int) string {
	if gpu == "" || count <= 1 {
		return gpu
	}
	if i := strings.LastIndexByte(gpu, 'x'); i > 0 {
		if _, err := strconv.Atoi(gpu[i+1:]); err == nil {
			return gpu
		}
	}
	return gpu + "x" + strconv.Itoa(count)
}

// acceptsRole reports whether pods of a role are workers.
func (r *Rules) acceptsRole(role string) bool {
	if role == "" {
		return true
	}
	if len(r.Roles) == 0 {
		return role != rolePrefill
	}
	return slices.Contains(r.Roles, role)
}

// workerLabels are the labels of the entry and those of the pod, which take precedence, and the zone.
func (r *Rules) workerLabels(e *Endpoint) map[string]string {
	out := maps.Clone(r.Labels)
	if out == nil {
		out = map[string]string{}
	}
	if e.Zone != "" {
		out[labelZone] = e.Zone
	}
	for _, k := range slices.Sorted(maps.Keys(e.Labels)) {
		if _, known := out[k]; known || len(out) < maxWorkerLabels {
			out[k] = e.Labels[k]
		}
	}
	if len(out) == 0 {
		return nil
	}
	return out
}

// choosePorts returns the ports of an endpoint that are workers, or why there is none.
func (r *Rules) choosePorts(e *Endpoint) (ports []uint16, why string) {
	if len(r.TargetPorts) > 0 {
		return r.TargetPorts, ""
	}
	if r.Port != 0 {
		return []uint16{uint16(r.Port)}, ""
	}
	if r.PortName != "" {
		for _, p := range e.Ports {
			if p.Name == r.PortName {
				return []uint16{p.Number}, ""
			}
		}
		return nil, fmt.Sprintf("it has no TCP port %q, only %s: correct port_name", r.PortName, describePorts(e.Ports))
	}
	if len(e.Ports) != 1 {
		return nil, fmt.Sprintf("which of its ports is the worker's is unknown, it has %s: write port or port_name", describePorts(e.Ports))
	}
	return []uint16{e.Ports[0].Number}, ""
}

func describePorts(ports []Port) string {
	if len(ports) == 0 {
		return "none"
	}
	var out []string
	for _, p := range ports[:min(len(ports), 8)] {
		out = append(out, strings.TrimSpace(p.Name+" "+strconv.Itoa(int(p.Number))))
	}
	return strings.Join(out, ", ")
}

// workerName is the name of a worker. It contains the pod's name, which all local instances of the zone see alike, or the
// address where there is none or it is too long.
func (r *Rules) workerName(e *Endpoint, port uint16, several bool) string {
	prefix := ""
	if r.Prefix != "" {
		prefix = r.Prefix + "-"
	}
	suffix := "-" + strconv.Itoa(int(port))
	if e.Pod != "" {
		name := prefix + e.Pod
		if several {
			name += suffix
		}
		if len(name) <= maxNameBytes {
			return name
		}
	}
	return cmp.Or(prefix, "pod-") + dashedAddr(e.Address) + suffix
}

// dashedAddr formats an address as a part of a name.
func dashedAddr(a netip.Addr) string {
	if a.Is4() {
		return strings.ReplaceAll(a.String(), ".", "-")
	}
	return strings.ReplaceAll(a.WithZone("").StringExpanded(), ":", "-")
}
