package config

import (
	"fmt"
	"maps"
	"net/textproto"
	"slices"
	"strings"

	"github.com/spillway-lb/spillway/internal/config/strict"
)

// WorkerAccess holds the credentials and headers sent to a worker, and how its TLS is checked.
type WorkerAccess struct {
	APIKeyFile  string
	Headers     map[string]string
	HeaderFiles map[string]string
	TLS         WorkerTLS
}

// Access returns that of the entry.
func (w *WorkerEntry) Access() WorkerAccess {
	return WorkerAccess{APIKeyFile: w.APIKeyFile, Headers: w.Headers, HeaderFiles: w.HeaderFiles, TLS: w.TLS}
}

// UsesTLS reports whether any of the worker's addresses is https.
func (w *WorkerEntry) UsesTLS() bool {
	for _, at := range []string{w.URL, w.GRPC, w.Metrics} {
		if strings.HasPrefix(at, "https:") {
			return true
		}
	}
	return false
}

// SetAccess sets that of the entry.
func (w *WorkerEntry) SetAccess(a WorkerAccess) {
	w.APIKeyFile, w.Headers, w.HeaderFiles, w.TLS = a.APIKeyFile, a.Headers, a.HeaderFiles, a.TLS
}

// Access returns that of every worker at the name.
func (n *DNSDiscovery) Access() WorkerAccess {
	return WorkerAccess{APIKeyFile: n.APIKeyFile, Headers: n.Headers, HeaderFiles: n.HeaderFiles, TLS: n.TLS}
}

// Access returns that of every worker that registers.
func (r *Registration) Access() WorkerAccess {
	return WorkerAccess{APIKeyFile: r.APIKeyFile, Headers: r.Headers, HeaderFiles: r.HeaderFiles, TLS: r.TLS}
}

// IsEmpty reports whether nothing is set.
func (a *WorkerAccess) IsEmpty() bool {
	return a.APIKeyFile == "" && len(a.Headers) == 0 && len(a.HeaderFiles) == 0 && a.TLS == (WorkerTLS{})
}

// HasCredentials reports whether requests carry a credential.
func (a *WorkerAccess) HasCredentials() bool {
	return a.APIKeyFile != "" || len(a.Headers) > 0 || len(a.HeaderFiles) > 0
}

// maxExtraHeaders bounds the extra headers of a worker.
const maxExtraHeaders = 32

// FindProblems checks the keys; https means that the worker is reached by TLS. Paths are relative to the entry,
// and no message contains a value.
func (a WorkerAccess) FindProblems(https bool) []strict.Problem {
	var out []strict.Problem
	bad := func(path, reason, hint string) {
		out = append(out, strict.Problem{Path: path, Reason: reason, Hint: hint})
	}
	seen := map[string]string{}
	if a.APIKeyFile != "" {
		seen["Authorization"] = "api_key_file"
	}
	if n := len(a.Headers) + len(a.HeaderFiles); n > maxExtraHeaders {
		bad("headers", fmt.Sprintf("%d headers", n), fmt.Sprintf("headers and header_files hold %d at most", maxExtraHeaders))
	}
	for _, list := range []struct {
		key    string
		values map[string]string
	}{{"headers", a.Headers}, {"header_files", a.HeaderFiles}} {
		for _, name := range slices.Sorted(maps.Keys(list.values)) {
			at := list.key + "." + strict.QuoteKey(name)
			canonical := textproto.CanonicalMIMEHeaderKey(name)
			switch other := seen[canonical]; {
			case headerProblem(canonical) != "":
				bad(at, headerProblem(canonical), "leave it out")
			case other != "":
				bad(at, fmt.Sprintf("header %s is also set by %s", canonical, other), "keep one of the two")
			case list.key == "header_files" && list.values[name] == "":
				bad(at, "the header names no file", "write the file that holds its value")
			case list.key == "headers" && !IsHeaderValue(list.values[name]):
				bad(at, "the value is empty, too long or has characters that no header may have", "write printable characters, at most 4096")
			}
			seen[canonical] = list.key
		}
	}
	switch t := a.TLS; {
	case (t.Cert == "") != (t.Key == ""):
		bad("tls", "a client certificate needs both tls.cert and tls.key", "write both, or neither")
	case t != (WorkerTLS{}) && !https:
		bad("tls", "tls is for https workers, and this one is reached by http", "write https:// in url, or leave tls out")
	}
	return out
}

// maxHeaderValue bounds the value of a header, in bytes.
const maxHeaderValue = 4096

// IsHeaderValue reports whether s is a valid header value: printable ASCII without surrounding space.
func IsHeaderValue(s string) bool {
	return s != "" && len(s) <= maxHeaderValue && s == strings.TrimSpace(s) &&
		!strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r > '~' })
}

// headerProblem returns why a header must not be set: it belongs to one connection or to the message, or is
// Spillway's own.
func headerProblem(canonical string) string {
	if canonical == "" || len(canonical) > 128 || strings.ContainsFunc(canonical, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("!#$%&'*+-.^_`|~", r))
	}) {
		return fmt.Sprintf("%q is not a header's name", canonical)
	}
	switch canonical {
	case "Connection", "Proxy-Connection", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization", "Te", "Trailer",
		"Transfer-Encoding", "Upgrade", "Host", "Expect", "Content-Length", "Content-Type", "Content-Encoding", "Accept-Encoding":
		return fmt.Sprintf("header %s is set by the connection or the request", canonical)
	}
	for _, prefix := range []string{"Spillway-", "X-Spillway-", "Sec-Websocket-", "Grpc-"} {
		if strings.HasPrefix(canonical, prefix) {
			return fmt.Sprintf("header %s is reserved", canonical)
		}
	}
	return ""
}

// checkAccess reports the problems of one entry.
func (k *configChecker) checkAccess(path string, problems []strict.Problem) {
	for _, p := range problems {
		k.addProblem(path+p.Path, p.Reason, p.Hint)
	}
}

// SecretFiles lists the files with secrets, by key.
func (a *WorkerAccess) SecretFiles() map[string]string {
	out := map[string]string{}
	for key, file := range map[string]string{"api_key_file": a.APIKeyFile, "tls.ca": a.TLS.CA, "tls.cert": a.TLS.Cert, "tls.key": a.TLS.Key} {
		if file != "" {
			out[key] = file
		}
	}
	for name, file := range a.HeaderFiles {
		out["header_files."+name] = file
	}
	return out
}

func (a *WorkerAccess) rebasePaths(base string) {
	rebaseFiles(base, &a.APIKeyFile, &a.TLS.CA, &a.TLS.Cert, &a.TLS.Key)
	files := maps.Clone(a.HeaderFiles)
	for name, file := range files {
		rebaseFiles(base, &file)
		files[name] = file
	}
	a.HeaderFiles = files
}

// RebaseWorkers makes relative file paths of workers relative to base.
func RebaseWorkers(base string, list []WorkerEntry) {
	for i := range list {
		a := list[i].Access()
		a.rebasePaths(base)
		list[i].SetAccess(a)
	}
}
