package consensus

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"time"
)

// A snapshot is a magic line, the state as JSON, and the SHA-256 of both.
const (
	snapshotName    = "spillway state "
	snapshotVersion = 1
	snapshotMagic   = "spillway state 1\n"
	maxSnapshot     = 64 << 20
)

// ErrNewer means that a snapshot was written by a later release. It is whole, and must not be taken for damaged.
type ErrNewer struct {
	Version uint64 // of the format
}

// Error says what to do next.
func (e ErrNewer) Error() string {
	return fmt.Sprintf("snapshot of format %d, and this release knows formats up to %d: it was written by a later release: run that release on this node", e.Version, snapshotVersion)
}

// newer is the version in a snapshot's first line when it is beyond what we know.
func newer(b []byte) (version uint64, ok bool) {
	line, _, _ := bytes.Cut(b[:min(len(b), len(snapshotMagic)+20)], []byte("\n"))
	text, ok := bytes.CutPrefix(line, []byte(snapshotName))
	if !ok {
		return 0, false
	}
	version, err := strconv.ParseUint(string(text), 10, 64)
	return version, err == nil && version > snapshotVersion
}

// wireState is State as it is written: later versions may add fields. Its keys carry their secrets.
type wireState struct {
	Generation  uint64      `json:"generation,omitempty"`
	Index       uint64      `json:"index"`
	Term        uint64      `json:"term"`
	SpecVersion uint64      `json:"spec_version,omitempty"`
	Specs       []SpecEntry `json:"specs,omitempty"`
	Stage       *Stage      `json:"stage,omitempty"`
	PlanEpoch   uint64      `json:"plan_epoch,omitempty"`
	Plan        []byte      `json:"plan,omitempty"`
	PlanTerm    uint64      `json:"plan_term,omitempty"`
	PlanOrigin  Origin      `json:"plan_origin,omitzero"`
	Drains      []Drain     `json:"drains,omitempty"`
	Keys        []wireKey   `json:"keys,omitempty"`
	Done        []outcome   `json:"done,omitempty"`
	Audit       []Record    `json:"audit,omitempty"`
	Wanted      []string    `json:"wanted,omitempty"`

	Signing *wireSigning `json:"signing,omitempty"`
}

type wireKey struct {
	Secret []byte    `json:"secret"`
	At     time.Time `json:"at"`
}

// encodeState has one encoding for each state, so that hashes of it compare states.
func encodeState(s *State) ([]byte, error) {
	w := wireState{
		Generation: s.Generation, Index: s.Index, Term: s.Term, SpecVersion: s.SpecVersion, Specs: s.SpecHistory, Stage: s.Stage,
		PlanEpoch: s.PlanEpoch, Plan: s.Plan, PlanTerm: s.PlanTerm, PlanOrigin: s.PlanOrigin, Drains: s.Drains, Done: s.done, Audit: s.Audit, Wanted: s.Wanted,
	}
	for _, k := range s.TicketKeys {
		w.Keys = append(w.Keys, wireKey(k))
	}
	w.Signing = s.Signing.wire()
	text, err := json.Marshal(w)
	if err != nil {
		return nil, fmt.Errorf("encoding state: %w", err)
	}
	b := append([]byte(snapshotMagic), text...)
	sum := sha256.Sum256(b)
	return append(b, sum[:]...), nil
}

// decodeState reads a snapshot to its end and trusts nothing before the sum fits.
func decodeState(r io.Reader) (*State, error) {
	b, err := io.ReadAll(io.LimitReader(r, maxSnapshot+1))
	later, isLater := newer(b)
	switch {
	case err != nil:
		return nil, fmt.Errorf("reading snapshot: %w", err)
	case isLater:
		return nil, fmt.Errorf("reading snapshot: %w", ErrNewer{Version: later})
	case len(b) > maxSnapshot:
		return nil, fmt.Errorf("reading snapshot: longer than %d bytes", maxSnapshot)
	case len(b) < len(snapshotMagic)+sha256.Size || !bytes.HasPrefix(b, []byte(snapshotMagic)):
		return nil, errors.New("reading snapshot: not a spillway snapshot of a version this node knows")
	}
	body, sum := b[:len(b)-sha256.Size], b[len(b)-sha256.Size:]
	if got := sha256.Sum256(body); !bytes.Equal(got[:], sum) {
		return nil, errors.New("reading snapshot: its checksum does not fit: the file is damaged")
	}
	var w wireState
	if err := json.Unmarshal(body[len(snapshotMagic):], &w); err != nil {
		return nil, fmt.Errorf("reading snapshot: %w", err)
	}
	return w.state()
}

// state checks what apply upholds: a whole file may still have been written by something else.
func (w wireState) state() (*State, error) {
	s := &State{
		Generation: w.Generation, Index: w.Index, Term: w.Term, SpecVersion: w.SpecVersion, SpecHistory: w.Specs, Stage: w.Stage,
		PlanEpoch: w.PlanEpoch, Plan: w.Plan, PlanTerm: w.PlanTerm, PlanOrigin: w.PlanOrigin, Drains: w.Drains, done: w.Done, Audit: w.Audit, Wanted: w.Wanted,
	}
	for _, k := range w.Keys {
		s.TicketKeys = append(s.TicketKeys, Key(k))
	}
	sorted := true
	for i := 1; i < len(s.Drains); i++ {
		sorted = sorted && s.Drains[i-1].Path < s.Drains[i].Path
	}
	switch {
	case len(s.SpecHistory) > maxSpecs || len(s.TicketKeys) > maxKeys || len(s.Drains) > maxDrains || len(s.done) > maxOutcome || len(s.Audit) > maxAudit || len(s.Wanted) > maxWanted:
		return nil, errors.New("reading snapshot: it holds more than a state may")
	case !slices.IsSorted(s.Wanted):
		return nil, errors.New("reading snapshot: its candidates are not in order")
	case !sorted:
		return nil, errors.New("reading snapshot: its drains are not in order")
	case (s.SpecVersion == 0) != (len(s.SpecHistory) == 0), (s.PlanEpoch == 0) != (len(s.Plan) == 0):
		return nil, errors.New("reading snapshot: a version without its content")
	}
	if err := s.Stage.check(); err != nil {
		return nil, fmt.Errorf("reading snapshot: %w", err)
	}
	var err error
	if s.Signing, err = w.Signing.signing(); err != nil {
		return nil, fmt.Errorf("reading snapshot: %w", err)
	}
	if err := Verify(s.Audit); err != nil {
		return nil, fmt.Errorf("reading snapshot: audit: %w", err)
	}
	if len(s.SpecHistory) > 0 {
		if s.SpecHistory[0].Version != s.SpecVersion {
			return nil, errors.New("reading snapshot: the newest spec is not the current one")
		}
		s.Spec = s.SpecHistory[0].Body
	}
	return s, nil
}
