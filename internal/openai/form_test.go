package openai_test

import (
	"bytes"
	"io"
	"mime"
	"mime/multipart"
	"net/textproto"
	"strings"
	"testing"

	"github.com/spillway-lb/spillway/internal/openai"
)

// buildForm encodes a form as curl and the official clients do.
func buildForm(t testing.TB, fields ...string) (contentType string, body []byte) {
	var b bytes.Buffer
	w := multipart.NewWriter(&b)
	for i := 0; i < len(fields); i += 2 {
		part, err := w.CreatePart(textproto.MIMEHeader{"Content-Disposition": {fields[i]}})
		requireNoError(t, err)
		_, err = io.WriteString(part, fields[i+1])
		requireNoError(t, err)
	}
	requireNoError(t, w.Close())
	return w.FormDataContentType(), b.Bytes()
}

func TestScanForm(t *testing.T) {
	audio := strings.Repeat("a", 6400)
	ct, body := buildForm(t, `form-data; name="file"; filename="a.wav"`, audio, `form-data; name="model"`, "whisper", `form-data; name="prompt"`, "hint", `form-data; name="stream"`, "true")
	env := openai.Envelope{Model: "left over", User: "left over"}
	requireNoError(t, openai.ScanForm(openai.ShapeTranscription, ct, body, &env))
	if env.Model != "whisper" || env.User != "" || !env.Stream || env.PromptIDs != 10 || env.PromptBytes != 4 || string(body[env.ModelStart:env.ModelEnd]) != "whisper" {
		t.Errorf("envelope is %+v", env)
	}
	w := openai.NewEditedBody(body)
	w.SetModel(&env, "large-v3")
	if got := string(w.Bytes()); got != strings.Replace(string(body), "whisper", "large-v3", 1) {
		t.Errorf("with another model it is %s", got)
	}
	ct, body = buildForm(t, `form-data; name="model"`, "m", `form-data; name="image[]"; filename="a.png"`, audio, `form-data; name="n"`, "2")
	requireNoError(t, openai.ScanForm(openai.ShapeImages, ct, body, &env))
	if env.Images != 1 || env.N != 2 || env.Stream {
		t.Errorf("envelope is %+v", env)
	}
}

// TestScanFormRejectsInvalidForms: ambiguous forms are refused.
func TestScanFormRejectsInvalidForms(t *testing.T) {
	const model = `form-data; name="model"`
	for name, fields := range map[string][]string{
		"no model":          {`form-data; name="file"; filename="a"`, "x"},
		"empty model":       {model, ""},
		"two models":        {model, "small", model, "large"},
		"another case":      {model, "small", `form-data; name="Model"`, "large"},
		"a file":            {`form-data; name="model"; filename="a"`, "small"},
		"a backslash":       {`form-data; name="a\"; name=\"model"`, "small", model, "large"},
		"two names":         {`form-data; name="a"; name="model"`, "small", model, "large"},
		"an extended name":  {`form-data; name*=utf-8''model`, "small", model, "large"},
		"not form-data":     {`attachment; name="model"`, "small"},
		"a negative number": {model, "m", `form-data; name="n"`, "-1"},
	} {
		ct, body := buildForm(t, fields...)
		var env openai.Envelope
		if err := openai.ScanForm(openai.ShapeTranscription, ct, body, &env); err == nil {
			t.Errorf("%s: %s is taken for %q", name, body, env.Model)
		}
	}
	ct, body := buildForm(t, model, "m")
	boundary := strings.TrimPrefix(ct, "multipart/form-data; boundary=")
	for name, changed := range map[string]string{
		"a preamble":                   "x\r\n" + string(body),
		"an epilogue":                  string(body) + "x",
		"line feeds alone":             strings.ReplaceAll(string(body), "\r\n", "\n"),
		"cut":                          string(body[:len(body)-8]),
		"a boundary inside":            strings.Replace(string(body), "\r\n\r\nm", "\r\n\r\nm--"+boundary, 1),
		"a boundary behind a bare LF":  strings.Replace(string(body), "\r\n\r\nm", "\r\n\r\nm\n--"+boundary+"\n", 1),
		"a longer boundary":            strings.Replace(string(body), boundary+"--", boundary+"x--", 1),
		"encoded":                      strings.Replace(string(body), "\r\n\r\nm", "\r\nContent-Transfer-Encoding: base64\r\n\r\nbQ==", 1),
		"a folded head":                strings.Replace(string(body), "\r\n\r\nm", "\r\nX: y\r\n z\r\n\r\nm", 1),
		"two dispositions":             strings.Replace(string(body), "\r\n\r\nm", "\r\ncontent-disposition: form-data; name=\"x\"\r\n\r\nm", 1),
		"a boundary that is not there": "",
	} {
		var env openai.Envelope
		if err := openai.ScanForm(openai.ShapeTranscription, ct, []byte(changed), &env); err == nil {
			t.Errorf("%s: %s is taken", name, changed)
		}
	}
	for _, other := range []string{"multipart/form-data", "multipart/form-data; boundary=", `multipart/form-data; boundary="a b"`, "multipart/form-data; charset=x; boundary=" + boundary} {
		var env openai.Envelope
		if err := openai.ScanForm(openai.ShapeTranscription, other, body, &env); err == nil {
			t.Errorf("Content-Type %s is taken", other)
		}
	}
}

// FuzzScanForm: an accepted form names the same model to the standard library.
func FuzzScanForm(f *testing.F) {
	ct, body := buildForm(f, `form-data; name="model"`, "m", `form-data; name="file"; filename="a"`, "xyz")
	f.Add(ct, body)
	f.Add("multipart/form-data; boundary=b", []byte("--b\r\nContent-Disposition: form-data; name=model\r\n\r\nm\r\n--b--\r\n"))
	f.Fuzz(func(t *testing.T, ct string, body []byte) {
		var env openai.Envelope
		if openai.ScanForm(openai.ShapeTranscription, ct, body, &env) != nil {
			return
		}
		_, params, err := mime.ParseMediaType(ct)
		if err != nil {
			return // not readable by any engine
		}
		model, files := "", 0
		for r := multipart.NewReader(bytes.NewReader(body), params["boundary"]); ; {
			part, err := r.NextRawPart()
			if err != nil {
				break
			}
			content, err := io.ReadAll(part)
			if err != nil {
				return
			}
			if part.FileName() != "" {
				files++
			}
			if strings.EqualFold(part.FormName(), "model") {
				model = string(content)
			}
		}
		if model != "" && model != env.Model {
			t.Fatalf("%s %q: we read %q, the standard library %q", ct, body, env.Model, model)
		}
	})
}
