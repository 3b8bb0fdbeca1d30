package admin

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
)

const (
	pathMembers = "/v1/members"
	pathLeader  = "/v1/leader"
	pathArchive = "/v1/snapshot"
)

// Member is one global node as Raft's configuration in force at the node asked has it.
type Member struct {
	Name   string `json:"name"`
	Addr   string `json:"addr"` // host:port for Raft
	Voter  bool   `json:"voter"`
	Leader bool   `json:"leader"`

	Health        string  `json:"health"`                    // "well", "behind", "silent" or "cannot write", to the node asked
	LastContactMS *int64  `json:"last_contact_ms,omitempty"` // since the node asked heard of it; none of itself, nor if it never did
	Behind        *uint64 `json:"behind,omitempty"`          // log entries that it lacks of what the node asked has
	Outlook       string  `json:"outlook,omitempty"`         // what the leader will do about it by itself
}

// The words that Member.Health holds.
const (
	HealthWell   = "well"
	HealthBehind = "behind"
	HealthSilent = "silent"
	// HealthCannotWrite is of a member whose disk takes no writes: it counts for a majority and cannot give its part.
	HealthCannotWrite = "cannot write"
)

// MembersAnswer lists the members after the call.
type MembersAnswer struct {
	Node string `json:"node"` // who was asked
	// CanWrite is how many voters answer, keep up and can write; Spare is how many of those may be lost before nothing can
	// be changed, negative while nothing can. Both are missing from a node of an earlier release.
	CanWrite *int     `json:"can_write,omitempty"`
	Spare    *int     `json:"spare,omitempty"`
	Members  []Member `json:"members"`
	Outside  string   `json:"outside,omitempty"` // set when the node asked was taken out, and says how it comes back
}

// MemberRequest adds a member, or gives one its vote.
type MemberRequest struct {
	Name   string `json:"name"`
	Addr   string `json:"addr"`
	Voter  bool   `json:"voter"`
	Reason string `json:"reason,omitempty"`
}

// LeaderRequest hands leadership on.
type LeaderRequest struct {
	To     string `json:"to,omitempty"` // empty: whichever voter is the most up to date
	Reason string `json:"reason,omitempty"`
}

// ArchiveAnswer is a node's state as a snapshot. It holds the keys that sign redirect tickets and the zone.
type ArchiveAnswer struct {
	Data []byte `json:"data"`
}

// ArchiveRequest puts an archived spec and its drains back in force. Only the leader takes it.
type ArchiveRequest struct {
	Data   []byte `json:"data"`
	Reason string `json:"reason,omitempty"`
}

// RestoreAnswer says which version the restored spec has become.
type RestoreAnswer struct {
	Version uint64 `json:"version"`
}

// Members lists the global nodes.
func (c *Client) Members(ctx context.Context) (*MembersAnswer, error) {
	return call[MembersAnswer](ctx, c, http.MethodGet, pathMembers, nil)
}

// AddMember adds a global node.
func (c *Client) AddMember(ctx context.Context, r MemberRequest) (*MembersAnswer, error) {
	return call[MembersAnswer](ctx, c, http.MethodPost, pathMembers, r)
}

// RemoveMember takes a global node out.
func (c *Client) RemoveMember(ctx context.Context, name, reason string) (*MembersAnswer, error) {
	return call[MembersAnswer](ctx, c, http.MethodDelete, pathMembers+"?"+url.Values{"name": {name}, "reason": {reason}}.Encode(), nil)
}

// Lead hands leadership on.
func (c *Client) Lead(ctx context.Context, r LeaderRequest) (*MembersAnswer, error) {
	return call[MembersAnswer](ctx, c, http.MethodPost, pathLeader, r)
}

// Archive fetches the node's state.
func (c *Client) Archive(ctx context.Context) (*ArchiveAnswer, error) {
	var raw bytes.Buffer
	if err := c.raw(ctx, http.MethodGet, pathArchive, nil, &raw, maxArchive); err != nil {
		return nil, err
	}
	return &ArchiveAnswer{Data: raw.Bytes()}, nil
}

// Restore puts an archived spec back in force.
func (c *Client) Restore(ctx context.Context, r ArchiveRequest) (*RestoreAnswer, error) {
	var text bytes.Buffer
	path := pathArchive + "?" + url.Values{"reason": {r.Reason}}.Encode()
	if err := c.raw(ctx, http.MethodPut, path, bytes.NewReader(r.Data), &text, maxAnswer); err != nil {
		return nil, err
	}
	out := new(RestoreAnswer)
	if err := json.Unmarshal(text.Bytes(), out); err != nil {
		return nil, fmt.Errorf("reading the answer of %s: %w", c.server, err)
	}
	return out, nil
}
