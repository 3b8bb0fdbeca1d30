package admin

import (
	"bytes"
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestArchiveOfMaximumSize: an archive of the maximum size is saved and restored, with its reason; a longer one is refused.
func TestArchiveOfMaximumSize(t *testing.T) {
	archive := bytes.Repeat([]byte{0xff, '<', '"', 0}, maxArchiveBytes/4)
	var got ArchiveRequest
	mux := http.NewServeMux()
	open := func(t apiRoute) {
		mux.HandleFunc(t.method+" "+t.path, func(w http.ResponseWriter, r *http.Request) { t.serve(w, r, "op") })
	}
	open(archiveRoute("", func(context.Context) (*ArchiveAnswer, error) { return &ArchiveAnswer{Data: archive}, nil }))
	open(restoreRoute("", func(_ context.Context, r ArchiveRequest, _ string) (*RestoreAnswer, error) {
		got = r
		return &RestoreAnswer{Version: 7}, nil
	}))
	node := httptest.NewServer(mux)
	defer node.Close()
	c := &Client{server: node.URL, base: node.URL, httpClient: node.Client()}
	saved, err := c.GetArchive(t.Context())
	if err != nil || !bytes.Equal(saved.Data, archive) {
		t.Fatalf("saved %d bytes, %v", len(saved.Data), err)
	}
	a, err := c.RestoreArchive(t.Context(), ArchiveRequest{Data: saved.Data, Reason: "a & b"})
	if err != nil || a.Version != 7 || !bytes.Equal(got.Data, archive) || got.Reason != "a & b" {
		t.Fatalf("restored %d bytes for %q, %v", len(got.Data), got.Reason, err)
	}
	if _, err := c.RestoreArchive(t.Context(), ArchiveRequest{Data: append(archive, 0)}); err == nil || !strings.Contains(err.Error(), "too large") {
		t.Errorf("a longer one: %v", err)
	}
	if _, err := callNode[RestoreAnswer](t.Context(), c, http.MethodPut, pathArchive, ArchiveRequest{Data: archive, Reason: "json"}); err != nil || got.Reason != "json" {
		t.Errorf("in JSON: %v", err)
	}
}
