package console

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"io/fs"
	"net/http"
	"path"
	"strings"
)

//go:embed web
var webFiles embed.FS

// asset is one static file.
type asset struct {
	body        []byte
	contentType string
	etag        string
}

// contentTypes are those of the static files. The system's tables are not used, because they differ between machines.
var contentTypes = map[string]string{
	".html": "text/html; charset=utf-8", ".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml",
}

// loadAssets reads the embedded files, by their path below Path.
func loadAssets() map[string]asset {
	out := map[string]asset{}
	err := fs.WalkDir(webFiles, "web", func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		body, err := webFiles.ReadFile(p)
		if err != nil {
			return err
		}
		sum := sha256.Sum256(body)
		out[strings.TrimPrefix(p, "web/")] = asset{body: body, contentType: contentTypes[path.Ext(p)], etag: `"` + hex.EncodeToString(sum[:12]) + `"`}
		return nil
	})
	if err != nil {
		panic(err) // the files are part of the binary
	}
	return out
}

// serveAsset serves a static file. The files contain no data of the fleet, so they need no login.
func (c *Console) serveAsset(w http.ResponseWriter, r *http.Request) {
	name := strings.TrimPrefix(r.URL.Path, Path)
	if name == "" {
		name = "index.html"
	}
	a, ok := c.assets[name]
	if !ok {
		writeRefusal(w, http.StatusNotFound, "no such page", Path+" is the console")
		return
	}
	h := w.Header()
	setSafeHeaders(h)
	// A browser asks for each file again with its ETag, so that after an upgrade no page mixes two releases.
	h.Set("Cache-Control", "no-cache")
	h.Set("ETag", a.etag)
	h.Set("Content-Type", a.contentType)
	if r.Header.Get("If-None-Match") == a.etag {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	w.Write(a.body) // an error means that the client disconnected
}

// contentPolicy admits the page's own files only: no inline script or style, no other site, no frame.
const contentPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

// setSafeHeaders sets the headers that restrict what a browser does with an answer.
func setSafeHeaders(h http.Header) {
	h.Set("Content-Security-Policy", contentPolicy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
}
