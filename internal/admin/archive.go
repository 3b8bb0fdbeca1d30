package admin

import (
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"strings"
)

const (
	// maxArchive bounds an archive in bytes: at least what a node reads back as a snapshot.
	maxArchive = 64 << 20
	// typeArchive is the content type of an archive as it is in a file. In JSON it is a third larger.
	typeArchive = "application/octet-stream"
)

// archiveRoute returns the archive as it is in a file to callers that accept typeArchive, and in JSON to others.
func archiveRoute(summary string, call func(context.Context) (*ArchiveAnswer, error)) route {
	t := look(pathArchive, summary, call)
	asJSON := t.serve
	t.serve = func(w http.ResponseWriter, r *http.Request, actor string) {
		if call == nil || r.Header.Get("Accept") != typeArchive {
			asJSON(w, r, actor)
			return
		}
		out, err := call(r.Context())
		if err != nil {
			writeError(w, err)
			return
		}
		w.Header().Set("Content-Type", typeArchive)
		w.Write(out.Data) // a reader that has gone needs no answer
	}
	return t
}

// restoreRoute takes an archive as it is in a file, with the reason in the query, or in JSON. Its bound is its own: an
// archive holds several specs.
func restoreRoute(summary string, call func(context.Context, ArchiveRequest, string) (*RestoreAnswer, error)) route {
	t := changeWithin(base64.StdEncoding.EncodedLen(maxArchive)+maxBody, http.MethodPut, pathArchive, summary, call)
	asJSON := t.serve
	t.serve = func(w http.ResponseWriter, r *http.Request, actor string) {
		if call == nil || r.Header.Get("Content-Type") != typeArchive {
			asJSON(w, r, actor)
			return
		}
		data, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxArchive))
		if err != nil {
			writeError(w, BadRequest("the archive cannot be read: "+err.Error(), ""))
			return
		}
		out, err := call(r.Context(), ArchiveRequest{Data: data, Reason: r.URL.Query().Get("reason")}, actor)
		answer(w, out, err)
	}
	return t
}

// raw makes a call whose body, or whose answer, is an archive as it is in a file.
func (c *Client) raw(ctx context.Context, method, path string, in io.Reader, out io.Writer, most int64) error {
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, in)
	if err != nil {
		return fmt.Errorf("making the call: %w", err)
	}
	req.Header.Set("Accept", typeArchive)
	req.Header.Set("Content-Type", typeArchive)
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return c.unreachable(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode/100 != 2 {
		return refusal(resp.StatusCode, io.LimitReader(resp.Body, maxAnswer))
	}
	if method == http.MethodGet && !strings.HasPrefix(resp.Header.Get("Content-Type"), typeArchive) {
		return fmt.Errorf("%s is of an earlier release, which sends archives in another form: use the spillway program of that release", c.server)
	}
	n, err := io.Copy(out, io.LimitReader(resp.Body, most+1))
	switch {
	case err != nil:
		return fmt.Errorf("reading the answer of %s: %w", c.server, err)
	case n > most:
		return fmt.Errorf("the answer of %s is longer than %d bytes", c.server, most)
	}
	return nil
}
