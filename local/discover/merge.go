package discover

import (
	"fmt"
	"net/url"
	"strings"
)

// SourceKind is the kind of source of a worker, in order of precedence: the operator's entries, DNS, Kubernetes, registrations.
type SourceKind uint8

// Kinds of sources.
const (
	SourceStatic SourceKind = iota
	SourceFile
	SourceDNS
	SourceKubernetes
	SourceRegistered
	numSources
)

// String names the kind in status and metrics.
func (k SourceKind) String() string {
	return [...]string{"static", "file", "dns", "kubernetes", "registration", "none"}[min(k, numSources)]
}

// sourceLists are the workers of each source.
type sourceLists [numSources][]Worker

// workerConflict is a worker that was left out.
type workerConflict struct {
	worker       string
	source       SourceKind
	holder       string     // worker with the same name or URL; empty at the bound of workers
	holderSource SourceKind // the holder's source
}

func (c *workerConflict) String() string {
	if c.holder == "" {
		return fmt.Sprintf("one local instance takes %d workers: split the zone", MaxWorkers)
	}
	return fmt.Sprintf("worker %s of source %s has its name or URL", c.holder, c.holderSource)
}

// mergeSources returns one list of all sources. A name and a URL occur once: the source with precedence keeps them,
// or within a source the earlier worker.
func (l *sourceLists) mergeSources() (all []Worker, from map[string]SourceKind, clashes map[workerConflict]struct{}) {
	from, clashes = map[string]SourceKind{}, map[workerConflict]struct{}{}
	urls := map[string]string{}
	for k := range numSources {
		for _, w := range l[k] {
			at := hostPort(w.URL)
			holder, taken := urls[at]
			if _, named := from[w.Name]; named {
				holder, taken = w.Name, true
			}
			if taken || len(all) >= MaxWorkers {
				clashes[workerConflict{worker: w.Name, source: k, holder: holder, holderSource: from[holder]}] = struct{}{}
				continue
			}
			all = append(all, w)
			from[w.Name], urls[at] = k, w.Name
		}
	}
	return all, from, clashes
}

// hostPort is a worker's URL in a canonical form for comparison.
func hostPort(s string) string {
	u, err := url.Parse(s)
	if err != nil {
		return s
	}
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	return strings.ToLower(u.Hostname()) + " " + port
}
