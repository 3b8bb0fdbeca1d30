package consensus

import (
	"bytes"
	"encoding/json"
	"testing"
)

// FuzzApply feeds anything at all as a log entry, twice: it never panics, and the same comes out.
func FuzzApply(f *testing.F) {
	for _, c := range []command{
		{Kind: kindPutSpec, ID: "x", Body: []byte("spec"), At: noon},
		{Kind: kindPutDrain, Path: "eu", Until: noon, At: noon},
		{Kind: kindRotateKey, Body: bytes.Repeat([]byte{1}, keySize), At: noon},
		{Kind: kindPurgeKeys, Body: bytes.Repeat([]byte{2}, keySize), At: noon},
		{Kind: kindPutPlan, Term: 1, Body: []byte("plan"), At: noon},
		{Kind: kindExpire, At: noon},
		{Kind: kindSign, Action: SignEnable, Path: "api.example.", Body: bytes.Repeat([]byte{1}, zoneKeySize), At: noon},
		{Kind: kindStage, Trial: &Trial{Regions: []string{"eu"}, Guard: "error_rate<2%", Window: 1}, Body: []byte("spec"), At: noon},
		{Kind: kindPutSpec, Trial: &Trial{Window: 1}, Ends: 1, Body: []byte("spec"), At: noon},
		{Kind: kindMarkStage, Ends: 1, Elapsed: 1, Detail: "figures", At: noon},
	} {
		f.Add(must(f, c))
	}
	f.Add([]byte{0xff})
	f.Fuzz(func(t *testing.T, data []byte) {
		a, ra := apply(&State{}, entry{index: 1, term: 1, data: data}, checks{})
		b, rb := apply(&State{}, entry{index: 1, term: 1, data: bytes.Clone(data)}, checks{})
		if a.Hash() == "" || a.Hash() != b.Hash() || ra != rb {
			t.Fatalf("two nodes differ after %q", data)
		}
		if c, err := decodeCommand(data); err == nil {
			if again, err := decodeCommand(must(t, c)); err != nil || !bytes.Equal(must(t, again), must(t, c)) {
				t.Fatalf("%q does not survive encoding: %v", data, err)
			}
		}
	})
}

// FuzzDecodeState holds that what restores can be written again to the same state.
func FuzzDecodeState(f *testing.F) {
	s, _ := apply(&State{}, entry{index: 1, term: 1, data: must(f, command{Kind: kindPutSpec, Body: []byte("spec"), At: noon})}, checks{})
	b, err := encodeState(s)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add([]byte(snapshotMagic))
	f.Add([]byte(`{"signing":{"zone":"api.example.","phase":"signed","keys":[{"secret":"AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE="}]}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		_, _ = decodeState(bytes.NewReader(data)) // the sum stops nearly everything: the rest is reached below
		var w wireState
		if json.Unmarshal(data, &w) != nil {
			return
		}
		s, err := w.state()
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

// FuzzReadFrame holds that frames are bounded and that answers are one of the known ones.
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
