package fault

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spillway-lb/spillway/chaos/fleet"
	"github.com/spillway-lb/spillway/chaos/gpu"
)

// workerInjury sets the chaos mode of simulated workers. The worker itself ends the mode after its time.
type workerInjury struct{ files *fleet.Files }

// workerModes builds the chaos of each kind from its parameters.
var workerModes = map[Kind]func(param func(string) string) gpu.Chaos{
	WorkerStalled: func(func(string) string) gpu.Chaos { return gpu.Chaos{Mode: gpu.ModeStall} },
	WorkerSlow:    slowChaos,
	WorkerThermal: slowChaos,
	WorkerFail: func(param func(string) string) gpu.Chaos {
		return gpu.Chaos{Mode: gpu.ModeFail, Status: parseCount(param("status")), Share: parseShare(param("share"))}
	},
	WorkerOOM: func(func(string) string) gpu.Chaos { return gpu.Chaos{Mode: gpu.ModeOOM} },
	WorkerLeak: func(param func(string) string) gpu.Chaos {
		return gpu.Chaos{Mode: gpu.ModeLeak, Requests: parseCount(param("requests")), Restart: param("restart")}
	},
	WorkerRefuse: func(func(string) string) gpu.Chaos { return gpu.Chaos{Mode: gpu.ModeRefuse} },
	WorkerHang:   func(func(string) string) gpu.Chaos { return gpu.Chaos{Mode: gpu.ModeHang} },
	WorkerTrickle: func(param func(string) string) gpu.Chaos {
		return gpu.Chaos{Mode: gpu.ModeTrickle, Interval: param("interval")}
	},
	WorkerWrong:      func(func(string) string) gpu.Chaos { return gpu.Chaos{Mode: gpu.ModeWrong} },
	WorkerLieMetrics: func(func(string) string) gpu.Chaos { return gpu.Chaos{Mode: gpu.ModeLieMetrics} },
	WorkerLieHealth: func(param func(string) string) gpu.Chaos {
		return gpu.Chaos{Mode: gpu.ModeLieHealth, Healthy: param("claim") == "healthy"}
	},
	WorkerPoison: func(param func(string) string) gpu.Chaos {
		return gpu.Chaos{Mode: gpu.ModePoison, Text: param("text"), Restart: param("restart")}
	},
	WorkerColdStart: func(param func(string) string) gpu.Chaos {
		return gpu.Chaos{Mode: gpu.ModeColdStart, Restart: param("restart")}
	},
	WorkerKeyRevoked: func(func(string) string) gpu.Chaos { return gpu.Chaos{Mode: gpu.ModeKeyRevoked} },
	WorkerLoseEvents: func(param func(string) string) gpu.Chaos {
		return gpu.Chaos{Mode: gpu.ModeLoseEvents, Share: parseShare(param("share"))}
	},
	WorkerDieStream: func(param func(string) string) gpu.Chaos {
		return gpu.Chaos{Mode: gpu.ModeDieMidstream, AfterTokens: parseCount(param("after_tokens")), Share: parseShare(param("share"))}
	},
}

func slowChaos(param func(string) string) gpu.Chaos {
	return gpu.Chaos{Mode: gpu.ModeSlow, Factor: parseShare(param("factor"))}
}

// parseCount and parseShare read texts that CheckSpec accepted.
func parseCount(text string) int {
	n, _ := strconv.Atoi(text)
	return n
}

func parseShare(text string) float64 {
	v, _ := strconv.ParseFloat(text, 64)
	return v
}

func (k *workerInjury) findVictims(s Spec) ([]string, error) {
	nodes, err := selectProcesses(k.files, s, nil)
	if err != nil {
		return nil, err
	}
	gpuType := s.Params["gpu"]
	types := map[string]bool{}
	nodes = slices.DeleteFunc(nodes, func(n fleet.Node) bool {
		if n.Role == "worker" {
			types[n.GPU] = true
		}
		return n.Role != "worker" || gpuType != "" && n.GPU != gpuType
	})
	if len(nodes) == 0 {
		var have []string
		for t := range types {
			have = append(have, t)
		}
		slices.Sort(have)
		return nil, fmt.Errorf("%s: no worker of %s has GPU %q: use one of %s", s.Kind, describeTarget(s), gpuType, strings.Join(have, ", "))
	}
	return nodeIDs(nodes), nil
}

func (k *workerInjury) apply(ctx context.Context, l *lease) error {
	in, _ := FindKind(l.Spec.Kind)
	c := workerModes[l.Spec.Kind](func(name string) string { return in.param(l.Spec, name) })
	left := time.Until(l.Until)
	if left <= 0 {
		return nil
	}
	c.Lease, c.For = l.Spec.ID, left.String()
	var errs []error
	for _, id := range l.Victims {
		was, err := k.callChaos(ctx, id, nil)
		if err == nil && was.Mode != gpu.ModeOK && was.Lease != l.Spec.ID {
			err = fmt.Errorf("%s is in chaos mode %s already (fault %q): a worker has one fault at a time", id, was.Mode, was.Lease)
		}
		if err == nil {
			_, err = k.callChaos(ctx, id, &c)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// clear ends the mode where it is this fault's. A worker that does not run has none.
func (k *workerInjury) clear(ctx context.Context, l *lease) error {
	var errs []error
	for _, id := range l.Victims {
		if k.files.RunningPID(id) == 0 {
			continue
		}
		now, err := k.callChaos(ctx, id, nil)
		if err == nil && now.Lease == l.Spec.ID {
			_, err = k.callChaos(ctx, id, &gpu.Chaos{Mode: gpu.ModeOK})
		}
		if err != nil && k.files.RunningPID(id) != 0 {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

func (k *workerInjury) probe(ctx context.Context, l *lease) (bool, string, error) {
	var text []string
	injured := 0
	for _, id := range l.Victims {
		c, err := k.callChaos(ctx, id, nil)
		switch {
		case err != nil && k.files.RunningPID(id) == 0:
			text = append(text, id+" does not run")
		case err != nil:
			return false, "", err
		default:
			text = append(text, fmt.Sprintf("%s mode %s", id, c.Mode))
			if c.Lease == l.Spec.ID {
				injured++
			}
		}
	}
	evidence := strings.Join(text, ", ")
	if l.Ended {
		return injured > 0, evidence, nil
	}
	return injured == len(l.Victims), evidence, nil
}

// chaosTimeout bounds a call of a worker's chaos page.
const chaosTimeout = 2 * time.Second

// callChaos reads a worker's chaos page, or sets it.
func (k *workerInjury) callChaos(ctx context.Context, id string, c *gpu.Chaos) (now gpu.Chaos, err error) {
	n, ok := k.files.FindNode(id)
	if !ok {
		return now, fmt.Errorf("%s is no node", id)
	}
	ctx, cancel := context.WithTimeout(ctx, chaosTimeout)
	defer cancel()
	method, body := http.MethodGet, []byte(nil)
	if c != nil {
		method = http.MethodPost
		if body, err = json.Marshal(c); err != nil {
			return now, err
		}
	}
	r, err := http.NewRequestWithContext(ctx, method, "http://"+n.Addr["http"].String()+"/chaos", bytes.NewReader(body))
	if err != nil {
		return now, err
	}
	r.Close = true
	a, err := http.DefaultClient.Do(r)
	if err != nil {
		return now, fmt.Errorf("chaos page of %s: %w", id, err)
	}
	defer a.Body.Close()
	b, err := io.ReadAll(io.LimitReader(a.Body, 64<<10))
	if err != nil {
		return now, fmt.Errorf("chaos page of %s: %w", id, err)
	}
	if a.StatusCode != http.StatusOK {
		return now, fmt.Errorf("chaos page of %s: %s: %s", id, a.Status, b)
	}
	return now, json.Unmarshal(b, &now)
}
