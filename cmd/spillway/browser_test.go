package main

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// testBrowser is a headless Chromium with one page, driven by the DevTools protocol over pipes.
type testBrowser struct {
	t       *testing.T
	in      *os.File
	session string

	mu      sync.Mutex
	lastID  int
	answers map[int]chan browserMessage
	errors  []string // exceptions, errors and warnings of the page
}

// browserMessage is an answer or an event.
type browserMessage struct {
	ID     int             `json:"id"`
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
	Result json.RawMessage `json:"result"`
	Error  *struct {
		Message string `json:"message"`
	} `json:"error"`
}

// openBrowser starts a browser with an empty page. The test is skipped where none is installed.
func openBrowser(t *testing.T) *testBrowser {
	t.Helper()
	binary := ""
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome", "chrome-headless-shell"} {
		if path, err := exec.LookPath(name); err == nil {
			binary = path
			break
		}
	}
	if binary == "" {
		t.Skip("no Chromium is installed: apt-get install chromium")
	}
	theirs, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	out, theirsOut, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), binary, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--disable-extensions", "--disable-background-networking",
		"--hide-scrollbars", "--lang=en-US", "--user-data-dir="+t.TempDir(), "--remote-debugging-pipe", "about:blank")
	cmd.ExtraFiles = []*os.File{theirs, theirsOut} // the protocol uses the descriptors 3 and 4
	cmd.WaitDelay = 5 * time.Second
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	theirs.Close()
	theirsOut.Close()
	b := &testBrowser{t: t, in: in, answers: map[int]chan browserMessage{}}
	go b.readMessages(out)
	t.Cleanup(func() {
		in.Close()
		cmd.Process.Kill()
		cmd.Wait()
		out.Close()
	})
	var target struct {
		TargetID string `json:"targetId"`
	}
	b.call("Target.createTarget", map[string]any{"url": "about:blank"}, &target)
	var attached struct {
		SessionID string `json:"sessionId"`
	}
	b.call("Target.attachToTarget", map[string]any{"targetId": target.TargetID, "flatten": true}, &attached)
	b.session = attached.SessionID
	for _, domain := range []string{"Runtime", "Log", "Page"} {
		b.call(domain+".enable", nil, nil)
	}
	return b
}

func (b *testBrowser) readMessages(out *os.File) {
	r := bufio.NewReader(out)
	for {
		text, err := r.ReadBytes(0)
		if err != nil {
			return
		}
		var m browserMessage
		if json.Unmarshal(bytes.TrimSuffix(text, []byte{0}), &m) != nil {
			continue
		}
		b.mu.Lock()
		if to := b.answers[m.ID]; to != nil {
			delete(b.answers, m.ID)
			to <- m
		}
		b.noteErrors(&m)
		b.mu.Unlock()
	}
}

// noteErrors stores what the browser's console would show in red or yellow.
func (b *testBrowser) noteErrors(m *browserMessage) {
	var p struct {
		Type  string `json:"type"`
		Entry struct{ Level, Text, URL string }
	}
	switch m.Method {
	case "Runtime.exceptionThrown":
		b.errors = append(b.errors, string(m.Params))
	case "Runtime.consoleAPICalled", "Log.entryAdded":
		if json.Unmarshal(m.Params, &p) == nil && (p.Type == "error" || p.Type == "warning" || p.Entry.Level == "error" || p.Entry.Level == "warning") {
			b.errors = append(b.errors, string(m.Params))
		}
	}
}

// takeErrors returns and forgets the errors of the page.
func (b *testBrowser) takeErrors() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	out := b.errors
	b.errors = nil
	return out
}

func (b *testBrowser) call(method string, params, result any) {
	b.t.Helper()
	if params == nil {
		params = struct{}{}
	}
	answer := make(chan browserMessage, 1)
	b.mu.Lock()
	b.lastID++
	message := map[string]any{"id": b.lastID, "method": method, "params": params}
	b.answers[b.lastID] = answer
	b.mu.Unlock()
	if b.session != "" {
		message["sessionId"] = b.session
	}
	text, err := json.Marshal(message)
	if err == nil {
		_, err = b.in.Write(append(text, 0))
	}
	if err != nil {
		b.t.Fatalf("%s: %v", method, err)
	}
	select {
	case m := <-answer:
		if m.Error != nil {
			b.t.Fatalf("%s: %s", method, m.Error.Message)
		}
		if result != nil {
			if err := json.Unmarshal(m.Result, result); err != nil {
				b.t.Fatalf("%s: %v", method, err)
			}
		}
	case <-time.After(testTimeout):
		b.t.Fatalf("%s: no answer of the browser within %s", method, testTimeout)
	}
}

// eval returns the value of a JavaScript expression as text.
func (b *testBrowser) eval(expression string) string {
	b.t.Helper()
	var out struct {
		Result           struct{ Value any }
		ExceptionDetails *struct {
			Text      string
			Exception struct{ Description string }
		}
	}
	b.call("Runtime.evaluate", map[string]any{"expression": expression, "returnByValue": true, "awaitPromise": true}, &out)
	if e := out.ExceptionDetails; e != nil {
		b.t.Fatalf("%s: %s %s", expression, e.Text, e.Exception.Description)
	}
	if out.Result.Value == nil {
		return ""
	}
	return fmt.Sprint(out.Result.Value)
}

// waitUntil waits until a JavaScript expression is true.
func (b *testBrowser) waitUntil(what, expression string) {
	b.t.Helper()
	for end := time.Now().Add(testTimeout); b.eval("Boolean("+expression+")") != "true"; {
		if time.Now().After(end) {
			b.t.Fatalf("%s did not come within %s; the page shows: %s; errors: %v", what, testTimeout, b.eval("document.body.innerText"), b.takeErrors())
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// setScreen sets the size of the page, and whether the system prefers dark colours.
func (b *testBrowser) setScreen(width, height int, phone, dark bool) {
	b.t.Helper()
	scale := 1
	if phone {
		scale = 2
	}
	scheme := "light"
	if dark {
		scheme = "dark"
	}
	b.call("Emulation.setDeviceMetricsOverride", map[string]any{"width": width, "height": height, "deviceScaleFactor": scale, "mobile": phone}, nil)
	b.call("Emulation.setEmulatedMedia", map[string]any{"features": []map[string]string{{"name": "prefers-color-scheme", "value": scheme}}}, nil)
}

// saveScreenshot writes a PNG of the page.
func (b *testBrowser) saveScreenshot(dir, name string) {
	b.t.Helper()
	var out struct{ Data string }
	b.call("Page.captureScreenshot", map[string]any{"format": "png"}, &out)
	png, err := base64.StdEncoding.DecodeString(out.Data)
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, name+".png"), png, 0o600)
	}
	if err != nil {
		b.t.Fatal(err)
	}
}

// quoteJS returns a text as a JavaScript literal.
func quoteJS(text string) string {
	b, _ := json.Marshal(text)
	return strings.ReplaceAll(string(b), "</", `<\/`)
}
