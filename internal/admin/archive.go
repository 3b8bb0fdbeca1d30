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
		return decodeRefusal(resp.StatusCode, io.LimitReader(resp.Body, maxAnswerBytes))
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
