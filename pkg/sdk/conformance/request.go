package conformance

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

type receivedRequest struct {
	index int
	body  []byte
}

// readRequest reads one request. seen is called as soon as its header section is complete, so that a request whose body
// never arrives is counted too; it gives the request's number.
func readRequest(in *bufio.Reader, seen func(Request) int) (receivedRequest, error) {
	var raw strings.Builder
	line, err := readLine(in, &raw)
	if err != nil {
		return receivedRequest{}, err
	}
	method, rest, _ := strings.Cut(line, " ")
	target, version, ok := strings.Cut(rest, " ")
	if !ok || !strings.HasPrefix(version, "HTTP/1.") {
		return receivedRequest{}, fmt.Errorf("not a request line: %q", line)
	}
	request := Request{Method: method, Target: target}
	for {
		line, err := readLine(in, &raw)
		if err != nil {
			return receivedRequest{}, err
		}
		if line == "" {
			break
		}
		name, value, ok := strings.Cut(line, ":")
		if !ok {
			return receivedRequest{}, fmt.Errorf("not a header field: %q", line)
		}
		request.Headers = append(request.Headers, [2]string{name, strings.Trim(value, " \t")})
	}
	request.Raw = raw.String()
	index := seen(request)
	body, err := readBody(in, request)
	return receivedRequest{index: index, body: body}, err
}

func readBody(in *bufio.Reader, request Request) ([]byte, error) {
	if encodings := request.Header("Transfer-Encoding"); len(encodings) > 0 {
		return readChunks(in)
	}
	lengths := request.Header("Content-Length")
	if len(lengths) == 0 {
		return nil, nil
	}
	length, err := strconv.ParseInt(lengths[0], 10, 32)
	if err != nil || length < 0 {
		return nil, errors.New("unusable Content-Length")
	}
	body := make([]byte, length)
	_, err = io.ReadFull(in, body)
	return body, err
}

func readChunks(in *bufio.Reader) ([]byte, error) {
	var body []byte
	for {
		line, err := readLine(in, nil)
		if err != nil {
			return nil, err
		}
		size, err := strconv.ParseInt(line, 16, 32)
		if err != nil || size < 0 {
			return nil, errors.New("unusable chunk size")
		}
		chunk := make([]byte, size)
		if _, err := io.ReadFull(in, chunk); err != nil {
			return nil, err
		}
		body = append(body, chunk...)
		if _, err := readLine(in, nil); err != nil {
			return nil, err
		}
		if size == 0 {
			return body, nil
		}
	}
}

func readLine(in *bufio.Reader, raw *strings.Builder) (string, error) {
	line, err := in.ReadString('\n')
	if err != nil {
		return "", err
	}
	if raw != nil {
		raw.WriteString(line)
	}
	return strings.TrimRight(line, "\r\n"), nil
}
