package consensus

import (
	"bytes"
	"encoding/json"
	"testing"
)

// FuzzApply applies arbitrary bytes as a log entry, twice: it never panics, and both results are equal.
func FuzzApply(f *testing.F) {
	for _, c := range []command{
		{Kind: kindPutSpec, ID: "x", Body: []byte("spec"), At: noon},
		{Kind: kindPutDrain, Path: "eu", Until: noon, At: noon},
		{Kind: kindRotateKey, Body: bytes.Repeat([]byte{1}, ticketKeySize), At: noon},
		{Kind: kindPurgeKeys, Body: bytes.Repeat([]byte{2}, ticketKeySize), At: noon},
		{Kind: kindPutPlan, Term: 1, Body: []byte("plan"), At: noon},
		{Kind: kindExpireDrains, At: noon},
		{Kind: kindChangeSigning, Action: SignEnable, Path: "api.example.", Body: bytes.Repeat([]byte{1}, zoneKeySize), At: noon},
		{Kind: kindStartRollout, Rollout: &RolloutConfig{Regions: []string{"eu"}, Conditions: "error_rate<2%", Window: 1}, Body: []byte("spec"), At: noon},
		{Kind: kindPutSpec, Rollout: &RolloutConfig{Window: 1}, EndsRollout: 1, Body: []byte("spec"), At: noon},
		{Kind: kindRolloutProgress, EndsRollout: 1, Elapsed: 1, Detail: "figures", At: noon},
	} {
		f.Add(mustEncode(f, c))
	}
	f.Add([]byte{0xff})
	f.Fuzz(func(t *testing.T, data []byte) {
		a, ra := applyEntry(&State{}, logEntry{index: 1, term: 1, data: data}, stateChecks{})
		b, rb := applyEntry(&State{}, logEntry{index: 1, term: 1, data: bytes.Clone(data)}, stateChecks{})
		if a.Hash() == "" || a.Hash() != b.Hash() || ra != rb {
			t.Fatalf("two nodes differ after %q", data)
		}
		if c, err := decodeCommand(data); err == nil {
			if again, err := decodeCommand(mustEncode(t, c)); err != nil || !bytes.Equal(mustEncode(t, again), mustEncode(t, c)) {
				t.Fatalf("%q does not survive encoding: %v", data, err)
			}
		}
	})
}

// FuzzDecodeState checks that a restored state can be encoded again to the same state.
func FuzzDecodeState(f *testing.F) {
	s, _ := applyEntry(&State{}, logEntry{index: 1, term: 1, data: mustEncode(f, command{Kind: kindPutSpec, Body: []byte("spec"), At: noon})}, stateChecks{})
	b, err := encodeState(s)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add([]byte(snapshotMagic))
	f.Add([]byte(`{"signing":{"zone":"api.example.","phase":"signed","keys":[{"secret":"AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE="}]}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		_, _ = decodeState(bytes.NewReader(data)) // the checksum rejects nearly everything: the rest is reached below
		var w wireState
		if json.Unmarshal(data, &w) != nil {
			return
		}
		s, err := w.toState()
		if err != nil {
			return
		}
		b, err := encodeState(s)
		if err != nil {
			return
		}
		if got, err := decodeState(bytes.NewReader(b)); err != nil || got.Hash() != s.Hash() {
			t.Fatalf("a state does not survive its snapshot: %v", err)
		}
	})
}

// FuzzReadFrame checks that frames are bounded and that answers are among the known ones.
func FuzzReadFrame(f *testing.F) {
	for _, body := range []string{`{"result":{"code":"ok","value":3}}`, `{"not_leader":true}`, `{}`} {
		var b bytes.Buffer
		if err := writeFrame(&b, []byte(body)); err != nil {
			f.Fatal(err)
		}
		f.Add(b.Bytes())
	}
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 1})
	f.Fuzz(func(t *testing.T, data []byte) {
		body, err := readFrame(bytes.NewReader(data), 1024)
		if err != nil {
			return
		}
		var b bytes.Buffer
		if err := writeFrame(&b, body); err != nil || !bytes.HasPrefix(data, b.Bytes()) || len(body) > 1024 {
			t.Fatalf("frame %q reads as %q", data, body)
		}
		if a, err := decodeAnswer(body); err == nil && !a.NotLeader && !a.Unknown && a.Result.Code == "" {
			t.Fatalf("answer %q passes without a verdict", body)
		}
	})
}
