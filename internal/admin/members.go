package admin

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"
)

const (
	pathMembers = "/v1/members"
	pathLeader  = "/v1/leader"
	pathArchive = "/v1/snapshot"
)

// Member is one member in the Raft configuration of the node that answers.
type Member struct {
	Name   string `json:"name"`
	Addr   string `json:"addr"` // host:port for Raft
	Voter  bool   `json:"voter"`
	Leader bool   `json:"leader"`

	Health        string  `json:"health"`                    // one of the Member constants
	LastContactMS *int64  `json:"last_contact_ms,omitempty"` // since the last message from it; absent for the node itself and before the first
	Behind        *uint64 `json:"behind,omitempty"`          // log entries of the answering node that it lacks
	Outlook       string  `json:"outlook,omitempty"`         // what the leader will do automatically
	ClockOffsetMS *int64  `json:"clock_offset_ms,omitempty"` // of its wall clock from the answering node's; absent while unknown
}

// The values of Member.Health. Earlier releases read them, so they stay as they are; the commands print other words.
const (
	MemberHealthy = "well"
	MemberBehind  = "behind" // lags behind the leader
	MemberSilent  = "silent" // unreachable
	// MemberCannotWrite is a member whose disk fails: it counts for a majority and cannot acknowledge writes.
	MemberCannotWrite = "cannot write"
)

// MembersAnswer lists the members after the call.
type MembersAnswer struct {
	Node string `json:"node"` // the node that answered
	// CanWrite is the number of voters that are reachable, keep up and can write. Spare is how many of those may fail while
	// changes stay possible, negative while they are not. Both are absent from a node of an earlier release.
	CanWrite *int     `json:"can_write,omitempty"`
	Spare    *int     `json:"spare,omitempty"`
	Members  []Member `json:"members"`
	Clock    *Clock   `json:"clock,omitempty"`   // of the node that answered; absent from a node of an earlier release
	Outside  string   `json:"outside,omitempty"` // set if the node that answered is not a member, with how to add it again
}

// MemberRequest adds a member, or makes one a voter.
type MemberRequest struct {
	Name   string `json:"name"`
	Addr   string `json:"addr"`
	Voter  bool   `json:"voter"`
	Reason string `json:"reason,omitempty"`
}

// LeaderRequest transfers leadership.
type LeaderRequest struct {
	To     string `json:"to,omitempty"` // empty: the most up-to-date voter
	Reason string `json:"reason,omitempty"`
}

// ArchiveAnswer is the replicated state as a snapshot. It contains the keys that sign redirect tickets and the zone.
type ArchiveAnswer struct {
	Data []byte `json:"data"`
}

// ArchiveRequest puts the spec and drains of an archive in force. Only the leader accepts it.
type ArchiveRequest struct {
	Data   []byte `json:"data"`
	Reason string `json:"reason,omitempty"`
}

// RestoreAnswer contains the new version of the restored spec.
type RestoreAnswer struct {
	Version uint64 `json:"version"`
}

// ListMembers lists the members of the Raft cluster.
func (c *Client) ListMembers(ctx context.Context) (*MembersAnswer, error) {
	return callNode[MembersAnswer](ctx, c, http.MethodGet, pathMembers, nil)
}

// AddMember adds a global node.
func (c *Client) AddMember(ctx context.Context, r MemberRequest) (*MembersAnswer, error) {
	return callNode[MembersAnswer](ctx, c, http.MethodPost, pathMembers, r)
}

// RemoveMember removes a global node.
func (c *Client) RemoveMember(ctx context.Context, name, reason string) (*MembersAnswer, error) {
	return callNode[MembersAnswer](ctx, c, http.MethodDelete, pathMembers+"?"+url.Values{"name": {name}, "reason": {reason}}.Encode(), nil)
}

// TransferLeadership transfers leadership.
func (c *Client) TransferLeadership(ctx context.Context, r LeaderRequest) (*MembersAnswer, error) {
	return callNode[MembersAnswer](ctx, c, http.MethodPost, pathLeader, r)
}

// GetArchive returns the replicated state of the node.
func (c *Client) GetArchive(ctx context.Context) (*ArchiveAnswer, error) {
	var raw bytes.Buffer
	if err := c.callWithArchive(ctx, http.MethodGet, pathArchive, nil, &raw, maxArchiveBytes); err != nil {
		return nil, err
	}
	return &ArchiveAnswer{Data: raw.Bytes()}, nil
}

// RestoreArchive puts the spec and drains of an archive in force.
func (c *Client) RestoreArchive(ctx context.Context, r ArchiveRequest) (*RestoreAnswer, error) {
	var text bytes.Buffer
	path := pathArchive + "?" + url.Values{"reason": {r.Reason}}.Encode()
	if err := c.callWithArchive(ctx, http.MethodPut, path, bytes.NewReader(r.Data), &text, maxAnswerBytes); err != nil {
		return nil, err
	}
	out := new(RestoreAnswer)
	if err := json.Unmarshal(text.Bytes(), out); err != nil {
		return nil, fmt.Errorf("reading the answer of %s: %w", c.server, err)
	}
	return out, nil
}

const (
	// maxArchiveBytes bounds an archive, in bytes. It is not less than the limit for a snapshot that a node reads.
	maxArchiveBytes = 64 << 20
	// archiveContentType is the content type of an archive in its file format. In JSON (base64) it is a third larger.
	archiveContentType = "application/octet-stream"
)

// archiveRoute returns the archive in its file format to callers that accept archiveContentType, and in JSON to others.
func archiveRoute(summary string, call func(context.Context) (*ArchiveAnswer, error)) apiRoute {
	t := getRoute(pathArchive, summary, call)
	asJSON := t.serve
	t.serve = func(w http.ResponseWriter, r *http.Request, actor string) {
		if call == nil || r.Header.Get("Accept") != archiveContentType {
			asJSON(w, r, actor)
			return
		}
		out, err := call(r.Context())
		if err != nil {
			writeError(w, err)
			return
		}
		w.Header().Set("Content-Type", archiveContentType)
		w.Write(out.Data) // an error means that the client disconnected
	}
	return t
}

// restoreRoute accepts an archive in its file format, with the reason in the query, or in JSON. It has its own size limit,
// because an archive contains several specs.
func restoreRoute(summary string, call func(context.Context, ArchiveRequest, string) (*RestoreAnswer, error)) apiRoute {
	t := boundedBodyRoute(base64.StdEncoding.EncodedLen(maxArchiveBytes)+maxBodyBytes, http.MethodPut, pathArchive, summary, call)
	asJSON := t.serve
	t.serve = func(w http.ResponseWriter, r *http.Request, actor string) {
		if call == nil || r.Header.Get("Content-Type") != archiveContentType {
			asJSON(w, r, actor)
			return
		}
		data, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxArchiveBytes))
		if err != nil {
			writeError(w, BadRequestError("the archive cannot be read: "+err.Error(), ""))
			return
		}
		out, err := call(r.Context(), ArchiveRequest{Data: data, Reason: r.URL.Query().Get("reason")}, actor)
		writeAnswer(w, out, err)
	}
	return t
}

// callWithArchive makes a call whose body or answer is an archive in its file format. limit bounds the answer, in bytes.
func (c *Client) callWithArchive(ctx context.Context, method, path string, in io.Reader, out io.Writer, limit int64) error {
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, in)
	if err != nil {
		return fmt.Errorf("making the call: %w", err)
	}
	req.Header.Set("Accept", archiveContentType)
	req.Header.Set("Content-Type", archiveContentType)
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	resp, err := c.httpClient.Do(req)
	if err != nil {
		return c.explainUnreachable(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode/100 != 2 {
		return decodeRefusal(resp, io.LimitReader(resp.Body, maxAnswerBytes))
	}
	if method == http.MethodGet && !strings.HasPrefix(resp.Header.Get("Content-Type"), archiveContentType) {
		return fmt.Errorf("%s is of an earlier release, which sends archives in another format: use the spillway command of that release", c.server)
	}
	n, err := io.Copy(out, io.LimitReader(resp.Body, limit+1))
	switch {
	case err != nil:
		return fmt.Errorf("reading the answer of %s: %w", c.server, err)
	case n > limit:
		return fmt.Errorf("the answer of %s is longer than %d bytes", c.server, limit)
	}
	return nil
}

const pathAudit = "/v1/audit"

// AuditRecord is one change by an operator. Each contains the hash of the record before it.
type AuditRecord struct {
	Seq     uint64    `json:"seq"`   // counts from 1 without gaps
	Index   uint64    `json:"index"` // Raft index of the change
	At      time.Time `json:"at"`
	Actor   string    `json:"actor"`
	Action  string    `json:"action"`
	Subject string    `json:"subject,omitempty"`
	Reason  string    `json:"reason,omitempty"`
	Detail  string    `json:"detail,omitempty"` // the differences
	Prev    string    `json:"prev"`
	Hash    string    `json:"hash"`
}

// AuditAnswer holds the newest records, oldest first.
type AuditAnswer struct {
	Node    string        `json:"node"`
	File    string        `json:"file,omitempty"` // the node's file with all records that it has received
	Records []AuditRecord `json:"records"`
}

// ListAudit returns the newest changes.
func (c *Client) ListAudit(ctx context.Context) (*AuditAnswer, error) {
	return callNode[AuditAnswer](ctx, c, http.MethodGet, pathAudit, nil)
}
