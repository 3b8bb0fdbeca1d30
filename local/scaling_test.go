package local_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/internal/admin"
	"github.com/spillway-lb/spillway/internal/spec"
	"github.com/spillway-lb/spillway/internal/testkit"
	"github.com/spillway-lb/spillway/local"
)

// startAgentWithAdmin starts an agent with an admin socket and a metrics listener, and returns a client for the one and the address of
// the other.
func startAgentWithAdmin(t *testing.T, models []spec.Model, workers ...*fakeVLLM) (*local.Agent, *admin.Client, string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "s") // a socket's path is short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	socket := filepath.Join(dir, "a.sock")
	a := startAgent(t, func(c *local.Config) {
		c.Spec = &spec.Spec{Models: models}
		c.AdminSocket, c.MetricsListen = socket, "127.0.0.1:0"
	}, workers...)
	c, err := admin.Dial("unix://"+socket, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return a, c, a.MetricsAddr().String()
}

// TestKEDAReadsTheExample asks as KEDA would by the example file, and follows its paths.
func TestKEDAReadsTheExample(t *testing.T) {
	_, _, addr := startAgentWithAdmin(t, nil, newFakeVLLM(t, "w1"))
	text, err := os.ReadFile("../deploy/kubernetes/keda.yaml")
	if err != nil {
		t.Fatal(err)
	}
	urls := regexp.MustCompile(`url: "(.*)"`).FindAllStringSubmatch(string(text), -1)
	paths := regexp.MustCompile(`valueLocation: "(.*)"`).FindAllStringSubmatch(string(text), -1)
	if len(urls) != 2 || len(paths) != 2 {
		t.Fatalf("%d urls and %d paths", len(urls), len(paths))
	}
	for i := range urls {
		u, err := url.Parse(urls[i][1])
		if err != nil {
			t.Fatal(err)
		}
		resp, err := testClient.Get("http://" + addr + u.RequestURI())
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if err != nil || resp.StatusCode != http.StatusOK {
			t.Fatalf("%d %s %v", resp.StatusCode, body, err)
		}
		v, err := lookupPath(body, paths[i][1])
		if n, ok := v.(float64); err != nil || !ok || n < 0 {
			t.Errorf("%s is %v, %v in %s", paths[i][1], v, err, body)
		}
	}
	if resp, err := testClient.Get("http://" + addr + "/v1/autoscaling?model=unknown"); err != nil || resp.StatusCode != http.StatusNotFound {
		t.Errorf("%v %v", resp, err)
	} else {
		_ = resp.Body.Close()
	}
}

// lookupPath takes a path of names and indexes, the part of GJSON's paths that the example uses.
func lookupPath(text []byte, path string) (any, error) {
	var v any
	if err := json.Unmarshal(text, &v); err != nil {
		return nil, err
	}
	for part := range strings.SplitSeq(path, ".") {
		switch x := v.(type) {
		case map[string]any:
			v = x[part]
		case []any:
			i, err := strconv.Atoi(part)
			if err != nil || i < 0 || i >= len(x) {
				return nil, fmt.Errorf("no index %q", part)
			}
			v = x[i]
		default:
			return nil, fmt.Errorf("nothing at %q", part)
		}
	}
	return v, nil
}

// TestRefusedRequestsCountAsDemand: requests for a model without workers are refused and count as demand.
func TestRefusedRequestsCountAsDemand(t *testing.T) {
	none := 0
	_, c, _ := startAgentWithAdmin(t, []spec.Model{{Name: "absent", Autoscaling: spec.Autoscaling{Min: &none}}, {Name: "unasked", Autoscaling: spec.Autoscaling{Min: &none}}}, newFakeVLLM(t, "w1"))
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	// The agent that start made is found through its own status: the socket is all that an operator has.
	st, err := c.GetStatus(ctx)
	if err != nil {
		t.Fatal(err)
	}
	endpoint := st.Regions[0].Zones[0].Endpoint
	long := `{"model":"absent","max_tokens":64,"messages":[{"role":"user","content":"` + strings.Repeat("word ", 4000) + `"}]}`
	for range 20 {
		resp, err := testClient.Post("http://"+endpoint+"/v1/chat/completions", "application/json", strings.NewReader(long))
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode/100 == 2 {
			t.Fatal("somebody served it")
		}
	}
	var got *admin.AutoscalingAnswer
	testkit.Eventually(t, "the refused requests are demand", func() bool {
		got, err = c.GetAutoscaling(ctx, "absent")
		return err == nil && len(got.Models) == 1 && got.Models[0].Desired >= 1
	})
	if m := got.Models[0]; m.Ready != 0 || m.Demand.Prefill < 1000 || m.Needed <= 0 || m.Saturation <= 0 {
		t.Errorf("%+v", m)
	}
	all, err := c.GetAutoscaling(ctx, "")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range all.Models {
		if m.Model == "unasked" && m.Desired != 0 {
			t.Errorf("without demand, the model unasked wants %+v", m)
		}
	}
}
