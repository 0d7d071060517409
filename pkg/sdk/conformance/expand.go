package conformance

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// verifyArgs are the members of webhook steps that the judge itself must know.
type verifyArgs struct {
	PayloadBase64 string `json:"payload_base64"`
}

var (
	macPattern    = regexp.MustCompile(`\{\{(v[01]|V1):([^:}]*):([^:}]*)\}\}`)
	repeatPattern = regexp.MustCompile(`\{\{repeat:([^:}]*):(\d+)\}\}`)
)

// expandArgs replaces, in the args of a webhook step, {{v1:SECRET:T}} by the lower-case hex HMAC of "T.payload" under
// SECRET, {{V1:..}} by the same in upper case, and {{repeat:TEXT:N}} by N times TEXT. A member "payload" becomes
// "payload_base64".
func expandArgs(raw json.RawMessage) (json.RawMessage, error) {
	if len(raw) == 0 {
		return json.RawMessage(`{}`), nil
	}
	var args map[string]any
	decoder := json.NewDecoder(strings.NewReader(string(raw)))
	decoder.UseNumber()
	if err := decoder.Decode(&args); err != nil {
		return nil, err
	}
	if text, ok := args["payload"].(string); ok {
		args["payload_base64"] = base64.StdEncoding.EncodeToString([]byte(text))
		delete(args, "payload")
	}
	encoded, _ := args["payload_base64"].(string)
	// What is signed may differ from what is received: see "signed_payload" in the README.
	signed := encoded
	if text, ok := args["signed_payload"].(string); ok {
		signed = base64.StdEncoding.EncodeToString([]byte(text))
		delete(args, "signed_payload")
	}
	payload, err := base64.StdEncoding.DecodeString(signed)
	if err != nil {
		return nil, err
	}
	return json.Marshal(expandStrings(args, payload))
}

func expandStrings(v any, payload []byte) any {
	switch v := v.(type) {
	case string:
		return expandText(v, payload)
	case []any:
		for i := range v {
			v[i] = expandStrings(v[i], payload)
		}
	case map[string]any:
		for k := range v {
			v[k] = expandStrings(v[k], payload)
		}
	}
	return v
}

func expandText(text string, payload []byte) string {
	text = macPattern.ReplaceAllStringFunc(text, func(found string) string {
		part := macPattern.FindStringSubmatch(found)
		mac := hmac.New(sha256.New, []byte(part[2]))
		fmt.Fprintf(mac, "%s.", part[3])
		mac.Write(payload)
		digest := hex.EncodeToString(mac.Sum(nil))
		if part[1] == "V1" {
			digest = strings.ToUpper(digest)
		}
		return digest
	})
	return repeatPattern.ReplaceAllStringFunc(text, func(found string) string {
		part := repeatPattern.FindStringSubmatch(found)
		n, err := strconv.Atoi(part[2])
		if err != nil {
			return found
		}
		return strings.Repeat(part[1], n)
	})
}

// expandAnswers puts the second server's address into the answers.
func expandAnswers(answers []Answer, base, second string) []Answer {
	expanded := make([]Answer, len(answers))
	replace := strings.NewReplacer("{{second}}", second, "{{base}}", base)
	for i, a := range answers {
		headers := make([][2]string, len(a.Headers))
		for j, h := range a.Headers {
			headers[j] = [2]string{h[0], replace.Replace(h[1])}
		}
		a.Headers = headers
		a.Body = replace.Replace(a.Body)
		expanded[i] = a
	}
	return expanded
}
