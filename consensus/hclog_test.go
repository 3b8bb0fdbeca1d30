package consensus

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"
)

func TestRaftLogsThroughSlog(t *testing.T) {
	var out bytes.Buffer
	var l hclog.Logger = hcLogger{logger: slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug}))}
	l = l.Named("raft").With("node", "g1")
	l.Debug("dropped")
	l.Info("routine", "servers", hclog.Fmt("%+v", []int{1, 2}))
	l.Warn(nothingToReplay)
	l.Warn("slow")
	l.Error("broken", "index", 7)
	for _, want := range []string{
		`level=DEBUG msg=routine node=g1 servers="[1 2]"`, `level=DEBUG msg="` + nothingToReplay,
		"level=WARN msg=slow", "level=ERROR msg=broken node=g1 index=7",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
	if strings.Contains(out.String(), "dropped") || l.Name() != "raft" {
		t.Errorf("raft's debug came through, or the name %q is wrong", l.Name())
	}
}
