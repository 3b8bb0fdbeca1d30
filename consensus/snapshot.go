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
	snapshotPrefix  = "spillway state "
	snapshotVersion = 1
	snapshotMagic   = "spillway state 1\n"
	maxSnapshot     = 64 << 20
)

// ErrNewerFormat means that a snapshot was written by a later release. It is intact and must not be treated as
// damaged.
type ErrNewerFormat struct {
	Version uint64 // of the format
}

// Error implements error.
func (e ErrNewerFormat) Error() string {
	return fmt.Sprintf("snapshot of format %d, and this release supports formats up to %d: it was written by a later release: run that release on this node", e.Version, snapshotVersion)
}

// parseNewerVersion returns the version in the first line of a snapshot if this release does not support it.
func parseNewerVersion(b []byte) (version uint64, ok bool) {
	line, _, _ := bytes.Cut(b[:min(len(b), len(snapshotMagic)+20)], []byte("\n"))
	text, ok := bytes.CutPrefix(line, []byte(snapshotPrefix))
	if !ok {
		return 0, false
	}
	version, err := strconv.ParseUint(string(text), 10, 64)
	return version, err == nil && version > snapshotVersion
}

// wireState is the stored form of State: later versions may add fields. Its keys carry their secrets.
type wireState struct {
	Generation    uint64         `json:"generation,omitempty"`
	Index         uint64         `json:"index"`
	Term          uint64         `json:"term"`
	SpecVersion   uint64         `json:"spec_version,omitempty"`
	Specs         []SpecEntry    `json:"specs,omitempty"`
	Rollout       *Rollout       `json:"stage,omitempty"`
	PlanEpoch     uint64         `json:"plan_epoch,omitempty"`
	Plan          []byte         `json:"plan,omitempty"`
	PlanTerm      uint64         `json:"plan_term,omitempty"`
	PlanOrigin    PlanOrigin     `json:"plan_origin,omitzero"`
	Drains        []Drain        `json:"drains,omitempty"`
	Keys          []wireKey      `json:"keys,omitempty"`
	Outcomes      []writeOutcome `json:"done,omitempty"`
	Audit         []AuditRecord  `json:"audit,omitempty"`
	PendingVoters []string       `json:"wanted,omitempty"`
	Switch        *RegionSwitch  `json:"switch,omitempty"`
	StopLever     *StopLever     `json:"stop_lever,omitempty"`

	Signing *wireSigning `json:"signing,omitempty"`
}

type wireKey struct {
	Secret []byte    `json:"secret"`
	At     time.Time `json:"at"`
}

// encodeState gives each state exactly one encoding, so that comparing hashes compares states.
func encodeState(s *State) ([]byte, error) {
	w := wireState{
		Generation: s.Generation, Index: s.Index, Term: s.Term, SpecVersion: s.SpecVersion, Specs: s.SpecHistory, Rollout: s.Rollout,
		PlanEpoch: s.PlanEpoch, Plan: s.Plan, PlanTerm: s.PlanTerm, PlanOrigin: s.PlanOrigin, Drains: s.Drains, Outcomes: s.outcomes, Audit: s.Audit, PendingVoters: s.PendingVoters, StopLever: s.StopLever, Switch: s.Switch,
	}
	for _, k := range s.TicketKeys {
		w.Keys = append(w.Keys, wireKey(k))
	}
	w.Signing = s.Signing.toWire()
	text, err := json.Marshal(w)
	if err != nil {
		return nil, fmt.Errorf("encoding state: %w", err)
	}
	b := append([]byte(snapshotMagic), text...)
	sum := sha256.Sum256(b)
	return append(b, sum[:]...), nil
}

// decodeState reads a snapshot to its end and uses nothing of it before the checksum is verified.
func decodeState(r io.Reader) (*State, error) {
	b, err := io.ReadAll(io.LimitReader(r, maxSnapshot+1))
	later, isLater := parseNewerVersion(b)
	switch {
	case err != nil:
		return nil, fmt.Errorf("reading snapshot: %w", err)
	case isLater:
		return nil, fmt.Errorf("reading snapshot: %w", ErrNewerFormat{Version: later})
	case len(b) > maxSnapshot:
		return nil, fmt.Errorf("reading snapshot: longer than %d bytes", maxSnapshot)
	case len(b) < len(snapshotMagic)+sha256.Size || !bytes.HasPrefix(b, []byte(snapshotMagic)):
		return nil, errors.New("reading snapshot: not a spillway snapshot of a supported version")
	}
	body, sum := b[:len(b)-sha256.Size], b[len(b)-sha256.Size:]
	if got := sha256.Sum256(body); !bytes.Equal(got[:], sum) {
		return nil, errors.New("reading snapshot: its checksum does not match: the file is damaged")
	}
	var w wireState
	if err := json.Unmarshal(body[len(snapshotMagic):], &w); err != nil {
		return nil, fmt.Errorf("reading snapshot: %w", err)
	}
	return w.toState()
}

// toState checks the invariants that applyEntry maintains: an intact file may still come from another program.
func (w wireState) toState() (*State, error) {
	s := &State{
		Generation: w.Generation, Index: w.Index, Term: w.Term, SpecVersion: w.SpecVersion, SpecHistory: w.Specs, Rollout: w.Rollout,
		PlanEpoch: w.PlanEpoch, Plan: w.Plan, PlanTerm: w.PlanTerm, PlanOrigin: w.PlanOrigin, Drains: w.Drains, outcomes: w.Outcomes, Audit: w.Audit, PendingVoters: w.PendingVoters, StopLever: w.StopLever, Switch: w.Switch,
	}
	for _, k := range w.Keys {
		s.TicketKeys = append(s.TicketKeys, TicketKey(k))
	}
	sorted := true
	for i := 1; i < len(s.Drains); i++ {
		sorted = sorted && s.Drains[i-1].Path < s.Drains[i].Path
	}
	switch {
	case len(s.SpecHistory) > maxSpecHistory || len(s.TicketKeys) > maxTicketKeys || len(s.Drains) > maxDrains || len(s.outcomes) > maxOutcomes || len(s.Audit) > maxAuditRecords || len(s.PendingVoters) > maxPendingVoters:
		return nil, errors.New("reading snapshot: its content exceeds the bounds of the state")
	case !slices.IsSorted(s.PendingVoters):
		return nil, errors.New("reading snapshot: its pending voters are not in order")
	case !sorted:
		return nil, errors.New("reading snapshot: its drains are not in order")
	case (s.SpecVersion == 0) != (len(s.SpecHistory) == 0), (s.PlanEpoch == 0) != (len(s.Plan) == 0):
		return nil, errors.New("reading snapshot: a version without its content")
	}
	if err := s.Rollout.checkFields(); err != nil {
		return nil, fmt.Errorf("reading snapshot: %w", err)
	}
	if err := s.Switch.checkFields(); err != nil {
		return nil, fmt.Errorf("reading snapshot: %w", err)
	}
	var err error
	if s.Signing, err = w.Signing.toSigning(); err != nil {
		return nil, fmt.Errorf("reading snapshot: %w", err)
	}
	if err := VerifyAudit(s.Audit); err != nil {
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
