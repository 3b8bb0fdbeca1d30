package discover

import (
	"fmt"
	"net/netip"
	"net/url"
	"path/filepath"
	"strings"

	"github.com/spillway-lb/spillway/internal/config"
	"github.com/spillway-lb/spillway/internal/config/strict"
	"github.com/spillway-lb/spillway/local/engine"
)

// MaxWorkers bounds one zone's list.
const MaxWorkers = 4096

// Worker is one inference server as the operator declares it, in the configuration or in a workers file.
type Worker = config.WorkerEntry

// workersDocument is the format of a workers file.
type workersDocument struct {
	Workers []Worker `yaml:"workers"`
}

// DecodeWorkers decodes a workers file; name is used in error messages. The error lists every mistake with its
// position.
func DecodeWorkers(name string, text []byte) ([]Worker, error) {
	doc, err := strict.Parse(name, text)
	if err != nil {
		return nil, fmt.Errorf("reading workers: %w", err)
	}
	var l workersDocument
	doc.Decode(&l)
	doc.ReportProblems(CheckWorkers(l.Workers))
	if err := doc.Err(); err != nil {
		return nil, fmt.Errorf("reading workers: %w", err)
	}
	config.RebaseWorkers(filepath.Dir(name), l.Workers)
	return l.Workers, nil
}

// CheckWorkers validates a list of workers.
func CheckWorkers(ws []Worker) []strict.Problem {
	var out []strict.Problem
	if len(ws) > MaxWorkers {
		out = append(out, strict.Problem{Path: "$.workers", Reason: fmt.Sprintf("%d workers", len(ws)), Hint: fmt.Sprintf("one local instance takes %d: split the zone", MaxWorkers)})
	}
	names, urls := map[string]bool{}, map[string]string{}
	for i, w := range ws {
		at := func(field, reason, hint string) {
			out = append(out, strict.Problem{Path: fmt.Sprintf("$.workers[%d].%s", i, field), Reason: reason, Hint: hint})
		}
		switch {
		case w.Name == "":
			at("name", "the worker has no name", "give it one that is unique in the zone")
		case !isPlainName(w.Name):
			at("name", fmt.Sprintf("the name %q has characters that a path or a header cannot contain", w.Name), "use letters, digits, '.', '_' and '-', at most 63 of them")
		case names[w.Name]:
			at("name", fmt.Sprintf("two workers are called %q", w.Name), "give each worker of the zone its own name")
		}
		names[w.Name] = true
		if reason, hint := checkURL(w.URL); reason != "" {
			at("url", reason, hint)
		} else if other, taken := urls[strings.TrimRight(w.URL, "/")]; taken {
			at("url", fmt.Sprintf("worker %q has the same URL", other), "list each inference server once")
		}
		urls[strings.TrimRight(w.URL, "/")] = w.Name
		if !(w.Weight > 0) || w.Weight > 1000 {
			at("weight", fmt.Sprintf("weight %v is not between 0 and 1000", w.Weight), "leave it out for 1, or drain the worker to send it nothing")
		}
		if len(w.ServerName) > 253 || !hasOnlyNameChars(w.ServerName) {
			at("server_name", fmt.Sprintf("%q is not a host's name", w.ServerName), "write the name that the worker's certificate is for")
		}
		if !engine.IsKnownDialect(w.Engine) {
			at("engine", fmt.Sprintf("unknown engine %q", w.Engine), strict.SuggestName(w.Engine, engine.DialectNames(), "engines"))
		}
		for field, address := range map[string]string{"metrics": w.Metrics, "gpu_metrics": w.GPUMetrics} {
			if reason, hint := checkPage(address); reason != "" {
				at(field, reason, hint)
			}
		}
		if len(w.GPUs) > 0 && w.GPUMetrics == "" {
			at("gpus", "gpus selects GPUs of an exporter, but gpu_metrics is not set", "write gpu_metrics: http://host:9400/metrics, or leave gpus out")
		}
		if w.MaxModels < 0 || w.MaxModels > 1000 {
			at("max_models", fmt.Sprintf("max_models %d is out of range", w.MaxModels), "write how many models fit at one time, 1 to 1000, or leave it out")
		}
		for _, p := range w.Access().FindProblems(w.UsesTLS()) {
			at(p.Path, p.Reason, p.Hint)
		}
		for _, p := range w.FindKVProblems() {
			at(p.Path, p.Reason, p.Hint)
		}
		for j, m := range w.Models {
			if m == "" || len(m) > 253 {
				at(fmt.Sprintf("models[%d]", j), "the model has no name, or one longer than 253 bytes", "write the id that requests use")
			}
		}
	}
	return out
}

// firstProblem returns the first problem of a source's workers as an error.
func firstProblem(where string, ws []Worker) error {
	for _, p := range CheckWorkers(ws) {
		return fmt.Errorf("workers of %s: %s: %s; hint: %s", where, p.Path, p.Reason, p.Hint)
	}
	return nil
}

func isPlainName(s string) bool {
	return len(s) <= 63 && hasOnlyNameChars(s)
}

func hasOnlyNameChars(s string) bool {
	return strings.IndexFunc(s, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '.' || r == '_' || r == '-')
	}) < 0
}

// checkURL refuses what is not a worker's URL: other schemes, a path, credentials, and link-local addresses, where
// clouds serve their metadata.
func checkURL(s string) (reason, hint string) {
	const form = "write http://host:port"
	u, err := url.Parse(s)
	if err != nil || u.Host == "" || u.Hostname() == "" || (u.Scheme != "http" && u.Scheme != "https") {
		return fmt.Sprintf("%q is not a worker's URL", s), form
	}
	if u.User != nil || u.RawQuery != "" || u.Fragment != "" || strings.Trim(u.Path, "/") != "" {
		return "a worker's URL holds nothing but scheme, host and port", form
	}
	if a, err := netip.ParseAddr(u.Hostname()); err == nil && IsForbiddenAddr(a) {
		return fmt.Sprintf("%s is not an allowed worker address", a), "link-local, multicast and unspecified addresses are refused"
	}
	return "", ""
}

// checkPage refuses what is not a page of a worker's machine. An empty page is valid.
func checkPage(s string) (reason, hint string) {
	if s == "" {
		return "", ""
	}
	u, err := url.Parse(s)
	if err != nil || u.User != nil || u.Fragment != "" {
		return fmt.Sprintf("%q is not a page's address", s), "write http://host:port/metrics"
	}
	u.Path, u.RawQuery = "", ""
	if reason, _ := checkURL(u.String()); reason != "" {
		return reason, "write http://host:port/metrics"
	}
	return "", ""
}

// IsForbiddenAddr reports whether no worker may be dialed at the address: link-local (where clouds serve their
// metadata), other metadata addresses of clouds, multicast, broadcast or unspecified. Dialers call it with the
// resolved address.
func IsForbiddenAddr(a netip.Addr) bool {
	a = unwrapNAT64(a.WithZone("").Unmap())
	if a.IsLinkLocalUnicast() || a.IsMulticast() || a.IsUnspecified() {
		return true
	}
	switch a.String() {
	case "255.255.255.255",
		"fd00:ec2::254",   // EC2's metadata
		"100.100.100.200", // Alibaba Cloud's
		"192.0.0.192",     // Oracle Cloud's
		"168.63.129.16":   // Azure's host agent
		return true
	}
	return false
}

// unwrapNAT64 is the IPv4 address of a NAT64 address (RFC 6052, 64:ff9b::/96), or the address itself.
func unwrapNAT64(a netip.Addr) netip.Addr {
	b := a.As16()
	if a.Is6() && [12]byte(b[:12]) == [12]byte{0, 0x64, 0xff, 0x9b} {
		return netip.AddrFrom4([4]byte(b[12:]))
	}
	return a
}
