package main

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/spillway-lb/spillway/internal/admin"
	"github.com/spillway-lb/spillway/internal/spec"
)

// scriptNode is an admin API whose answers are files of a script: status.json, spec.yaml, plan.json, audit.json and
// members.json. A call without its file is one that the tier does not support.
type scriptNode struct {
	ts  *testscript.TestScript
	dir string
}

// startScriptNode serves the admin API on a socket until the script ends: node global|regional|local NAME. It stores the
// address in the variable SERVER.
func startScriptNode(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: node global|regional|local NAME")
	}
	n := &scriptNode{ts, ts.MkAbs(".")}
	socket := filepath.Join(n.dir, filepath.Base(args[1])+".sock")
	s, err := admin.New(admin.Config{Socket: socket, Role: args[0], Node: args[1], Fleet: "script", Backend: n.makeBackend()})
	ts.Check(err)
	ts.Check(s.Start(context.Background()))
	ts.Defer(func() { _ = s.Stop(context.Background()) })
	ts.Setenv("SERVER", "unix://"+socket)
}

func (n *scriptNode) makeBackend() admin.Backend {
	b := admin.Backend{Status: readScriptAnswer[admin.Status](n, "status.json")}
	if n.hasFile("plan.json") {
		plan := readScriptAnswer[admin.PlanAnswer](n, "plan.json")
		b.Plan = func(ctx context.Context, _ uint64) (*admin.PlanAnswer, error) { return plan(ctx) }
	}
	if n.hasFile("audit.json") {
		b.Audit = readScriptAnswer[admin.AuditAnswer](n, "audit.json")
	}
	if n.hasFile("members.json") {
		b.Members = readScriptAnswer[admin.MembersAnswer](n, "members.json")
	}
	if n.hasFile("spec.yaml") {
		b.Spec, b.Apply = n.readSpec, n.applySpec
		b.SpecNow = n.readSpec
	}
	drains := func() []admin.Drain {
		s, err := readScriptAnswer[admin.Status](n, "status.json")(context.Background())
		if err != nil {
			return nil
		}
		return s.Drains
	}
	b.Drain = func(_ context.Context, r admin.DrainRequest, actor string) (*admin.DrainAnswer, error) {
		if err := admin.CheckNotDrained(drains(), r, time.Now()); err != nil {
			return nil, err
		}
		return &admin.DrainAnswer{Drains: append(drains(), r.NewDrain(actor, time.Now()))}, nil
	}
	b.Undrain = func(_ context.Context, path, _, _ string) (*admin.DrainAnswer, error) {
		return &admin.DrainAnswer{}, nil
	}
	return b
}

func (n *scriptNode) hasFile(name string) bool {
	_, err := os.Stat(filepath.Join(n.dir, name))
	return err == nil
}

// readScriptAnswer returns a call whose answer is a file at the time of the call.
func readScriptAnswer[A any](n *scriptNode, name string) func(context.Context) (*A, error) {
	return func(context.Context) (*A, error) {
		text, err := os.ReadFile(filepath.Join(n.dir, name))
		if err != nil {
			return nil, err
		}
		out := new(A)
		return out, json.Unmarshal(text, out)
	}
}

// scriptSpecVersion is the version of the spec that a script's node has in force.
const scriptSpecVersion = 7

func (n *scriptNode) readSpec(context.Context) (*admin.SpecAnswer, error) {
	text, err := os.ReadFile(filepath.Join(n.dir, "spec.yaml"))
	return &admin.SpecAnswer{Version: scriptSpecVersion, Text: string(text)}, err
}

// applySpec compares a spec with the one in force, and unless it is a dry run writes it to spec.yaml.
func (n *scriptNode) applySpec(ctx context.Context, r admin.ApplyRequest, _ string) (*admin.ApplyAnswer, error) {
	old, err := n.readSpec(ctx)
	if err != nil {
		return nil, err
	}
	if r.BasedOn != 0 && r.BasedOn != old.Version {
		return nil, admin.ConflictError("another spec is in force", "")
	}
	from, err := spec.Decode("old", []byte(old.Text))
	if err != nil {
		return nil, err
	}
	to, err := spec.Decode(r.Name, []byte(r.Text))
	if err != nil {
		return nil, admin.BadRequestError(err.Error(), "")
	}
	a := &admin.ApplyAnswer{Version: old.Version, DryRun: r.DryRun}
	for _, c := range spec.DiffSpecs(from, to) {
		a.Changes = append(a.Changes, admin.Change{Path: c.Path, From: c.From, To: c.To})
	}
	if r.DryRun {
		return a, nil
	}
	a.Version++
	return a, os.WriteFile(filepath.Join(n.dir, "spec.yaml"), []byte(r.Text), 0o600)
}
