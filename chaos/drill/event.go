package drill

import (
	"bufio"
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"
)

// EventKind is the kind of an event. The comment of each names the fields that it sets in addition to At.
type EventKind string

// Kinds of events of the controller.
const (
	// RunStateChanged: Text (state of the Machine).
	RunStateChanged EventKind = "run.state"
	// FaultInjected: Number (step, from 0), Target, Text (kind).
	FaultInjected EventKind = "fault.injected"
	// FaultFailed: Number (step), Text (why it could not be injected).
	FaultFailed EventKind = "fault.failed"
	// FaultCleared: Number (step), Target, Text (kind).
	FaultCleared EventKind = "fault.cleared"
	// FaultVerified: Number (step), Text (evidence of the probe). FaultRemains: the probe still finds the fault, or could not be made.
	FaultVerified EventKind = "fault.verified"
	FaultRemains  EventKind = "fault.remains"
	// RunStopped: Text (why the run ends early: a stop rule, an operator, or stop-all), Code (rule for a stop rule).
	RunStopped EventKind = "run.stopped"
	// MachineLate: Value (seconds by which the controller's own timer was late).
	MachineLate EventKind = "machine.late"
	// PageSeen: Node (alert that fired).
	PageSeen EventKind = "page.seen"
	// NoteAdded: Text (by an operator).
	NoteAdded EventKind = "note"
)

// Kinds of events of requests.
const (
	// RequestDue: Request, Target (region of the client), Text (tenant), Number (tokens that it asks for).
	RequestDue EventKind = "request.due"
	// AttemptStarted: Request, Node (worker), Number (tokens by earlier workers), Value (seconds since it was due).
	AttemptStarted EventKind = "request.attempt"
	// FirstToken: Request, Node (worker).
	FirstToken EventKind = "request.first"
	// RequestEnded: Request, Node (worker), Text (ok, refused, cut, lost or unfinished), Code, TTFT, TPOT, Number (tokens received), Good.
	RequestEnded EventKind = "request.end"
	// CancelSeen: Request, Node (worker), Value (seconds from the client's cancellation to the worker's).
	CancelSeen EventKind = "request.cancelled"
	// ProbeSent: Node (worker), Count (concurrent probes of a half-open breaker).
	ProbeSent EventKind = "breaker.probe"
)

// Kinds of events of the fleet.
const (
	// PlanApplied: Node, Number (epoch), Text (hash of the plan).
	PlanApplied EventKind = "plan.applied"
	// LeaderChanged: Node (leader; empty: none).
	LeaderChanged EventKind = "raft.leader"
	// TermSeen: Node (leader), Number (its term).
	TermSeen EventKind = "raft.term"
	// ResidencyKnown: Text (tenant), Target (the regions that may serve it, with commas).
	ResidencyKnown EventKind = "tenant.residency"
	// StateHash: Node, Number (applied index), Text (hash of the replicated state).
	StateHash EventKind = "raft.hash"
	// WriteAcked and WriteMissing: Text (key), Number (version), of acknowledged admin writes that were read back.
	WriteAcked   EventKind = "write.acked"
	WriteMissing EventKind = "write.missing"
	// RegionState: Node (observer), Target (region), Text (state as the observer has it).
	RegionState EventKind = "region.state"
	// NodeState: Node (global node), Text (up or down).
	NodeState EventKind = "node.state"
	// WorkerState: Node (observer), Target (worker), Text (state as the observer has it).
	WorkerState EventKind = "worker.state"
	// SummaryAge: Node (observer), Target (region), Value (seconds).
	SummaryAge EventKind = "summary.age"
	// DrainAcked and DrainEnded: Target (region).
	DrainAcked EventKind = "drain.acked"
	DrainEnded EventKind = "drain.ended"
	// CacheUsage: Node (the worker with the fullest cache), Number (used), Value (all blocks), Count (workers).
	CacheUsage EventKind = "worker.cache"
	// QueueLength: Node (zone), Number (waiting), Value (bound).
	QueueLength EventKind = "queue.length"
	// ProcessUsage: Node, Number (goroutines), Value (resident bytes).
	ProcessUsage EventKind = "process.usage"
	// ProcessStopped: Node, Value (seconds that its stop took).
	ProcessStopped EventKind = "process.stopped"
	// SecretFound: Node (where), Text (which canary).
	SecretFound EventKind = "secret.found"
	// SecretsChecked: Count (places without a canary).
	SecretsChecked EventKind = "secret.checked"
	// SummaryRejected: Node, Target (name in the summary), Text (accepted or rejected), of a summary that names another node.
	SummaryRejected EventKind = "summary.foreign"
	// CertificateUsed: Node, Text (accepted or refused), Code (expired, revoked or wrong role).
	CertificateUsed EventKind = "certificate.used"
	// StormEnded: Count (reconnections), Value (seconds until all reports were fresh).
	StormEnded EventKind = "uplink.storm"
)

// Kinds of events of DNS.
const (
	// DNSAnswered: Node, Text (region of the client), Target (region in the answer; empty: no address), Number (epoch), Value (TTL in
	// seconds), Count (equal answers that the event stands for), Latency.
	DNSAnswered EventKind = "dns.answer"
	// DNSFailed: Node, Text (region of the client), Code.
	DNSFailed EventKind = "dns.failed"
	// ResolverAnswered: Node (resolver), Text (region of the client), Target (region in its answer).
	ResolverAnswered EventKind = "dns.resolver"
	// ScopeReturned: Node, Number (prefix length of the query), Value (scope of the answer; -1: none), Count (prefix used to decide).
	ScopeReturned EventKind = "dns.scope"
	// SizeReturned: Node, Number (bytes of the query), Value (bytes of the answer).
	SizeReturned EventKind = "dns.size"
	// ShareMeasured: Target (region), Number (queries), Value (share of answers), TTFT (share in the plan).
	ShareMeasured EventKind = "dns.share"
)

// Event is one event of a run. What its fields mean is in the kind's comment.
type Event struct {
	At      time.Duration `json:"at"` // from the start of the run
	Kind    EventKind     `json:"kind"`
	Node    string        `json:"node,omitempty"`
	Target  string        `json:"target,omitempty"`
	Text    string        `json:"text,omitempty"`
	Code    string        `json:"code,omitempty"`
	Request uint64        `json:"request,omitempty"`
	Number  uint64        `json:"number,omitempty"`
	Value   float64       `json:"value,omitempty"`
	TTFT    float64       `json:"ttft,omitempty"`
	TPOT    float64       `json:"tpot,omitempty"`
	Latency float64       `json:"latency,omitempty"` // seconds
	Count   int           `json:"count,omitempty"`
	Good    bool          `json:"good,omitempty"` // met the SLO
}

// LogHeader is the first line of a stored log.
type LogHeader struct {
	Format  int    `json:"format"` // LogFormat
	Drill   string `json:"drill"`  // the file, formatted
	Way     string `json:"way"`    // WayVirtual or WayLive
	Seed    uint64 `json:"seed"`
	Version string `json:"version"`
	// Observes are the kinds of events that the observers of this run can record. A kind that is missing here was not
	// observable, which differs from one that did not happen.
	Observes []EventKind `json:"observes"`
	// Notes are what the run represents otherwise than the file states.
	Notes []string `json:"notes,omitempty"`
	// Started is when the run began; zero for virtual runs.
	Started time.Time `json:"started,omitzero"`
	// Previous is the chain value of the run before in the same folder; empty: it is the first.
	Previous string `json:"previous,omitempty"`
}

// LogFormat is the version of the format of stored logs.
const LogFormat = 1

// Ways of a run.
const (
	WayVirtual = "virtual"
	WayLive    = "live"
)

// EventLog is the merged events of one run, in order of time.
type EventLog struct {
	Header LogHeader
	Events []Event
}

// SortEvents orders the events by time; those of the same time keep their order.
func (l *EventLog) SortEvents() {
	slices.SortStableFunc(l.Events, func(a, b Event) int { return cmp.Compare(a.At, b.At) })
}

// CanObserve reports whether the observers of the run record all of these kinds.
func (l *EventLog) CanObserve(kinds ...EventKind) bool {
	return !slices.ContainsFunc(kinds, func(k EventKind) bool { return !slices.Contains(l.Header.Observes, k) })
}

// Until is when the last event happened.
func (l *EventLog) Until() time.Duration {
	if len(l.Events) == 0 {
		return 0
	}
	return l.Events[len(l.Events)-1].At
}

// findFirst is the first event of a kind from a time on that meets a condition.
func (l *EventLog) findFirst(kind EventKind, from time.Duration, cond func(*Event) bool) (*Event, bool) {
	for i := range l.Events {
		if e := &l.Events[i]; e.Kind == kind && e.At >= from && (cond == nil || cond(e)) {
			return e, true
		}
	}
	return nil, false
}

// chainLength is the number of characters of a chain value.
const chainLength = 2 * sha256.Size

// WriteLog writes a log as JSON lines. Each line ends with a tab and the hash of everything up to and including it; the last one is
// the chain value.
func (l *EventLog) WriteLog(w io.Writer) (chain string, err error) {
	b := bufio.NewWriter(w)
	writeLine := func(v any) error {
		text, err := json.Marshal(v)
		if err != nil {
			return err
		}
		chain = nextChain(chain, text)
		_, err = fmt.Fprintf(b, "%s\t%s\n", text, chain)
		return err
	}
	if err := writeLine(&l.Header); err != nil {
		return "", fmt.Errorf("writing the log: %w", err)
	}
	for i := range l.Events {
		if err := writeLine(&l.Events[i]); err != nil {
			return "", fmt.Errorf("writing the log: %w", err)
		}
	}
	return chain, b.Flush()
}

func nextChain(before string, line []byte) string {
	h := sha256.New()
	h.Write([]byte(before))
	h.Write([]byte{'\n'})
	h.Write(line)
	return hex.EncodeToString(h.Sum(nil))
}

// maxLogLine bounds a line of a stored log, and maxLogEvents the lines.
const (
	maxLogLine   = 1 << 20
	maxLogEvents = 5_000_000
)

// ReadLog reads a stored log and verifies its chain. The error names the first line that was changed.
func ReadLog(r io.Reader) (l *EventLog, chain string, err error) {
	lines := bufio.NewScanner(r)
	lines.Buffer(make([]byte, 0, 64<<10), maxLogLine)
	l = &EventLog{}
	for n := 1; lines.Scan(); n++ {
		text, sum, ok := bytes.Cut(lines.Bytes(), []byte{'\t'})
		if !ok || len(sum) != chainLength {
			return nil, "", fmt.Errorf("line %d of the log has no hash: the file is damaged, or is no log of a drill", n)
		}
		if chain = nextChain(chain, text); chain != string(sum) {
			return nil, "", fmt.Errorf("line %d of the log was changed: its hash does not follow from the lines before it", n)
		}
		if n == 1 {
			if err := json.Unmarshal(text, &l.Header); err != nil || l.Header.Format != LogFormat {
				return nil, "", fmt.Errorf("the log is of another version: this program reads format %d", LogFormat)
			}
			continue
		}
		if n > maxLogEvents {
			return nil, "", fmt.Errorf("the log has more than %d lines", maxLogEvents)
		}
		var e Event
		if err := json.Unmarshal(text, &e); err != nil {
			return nil, "", fmt.Errorf("line %d of the log: %w", n, err)
		}
		l.Events = append(l.Events, e)
	}
	if err := lines.Err(); err != nil {
		return nil, "", fmt.Errorf("reading the log: %w", err)
	}
	if chain == "" {
		return nil, "", errors.New("the log is empty")
	}
	return l, chain, nil
}
