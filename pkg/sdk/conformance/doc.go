// Package conformance holds what every ApiPay SDK must do, as language-neutral vectors, and judges an SDK against it:
// a scripted raw-socket server plays the API, the SDK's runner makes the calls, and both the calls' results and what
// was seen on the wire are compared with the vector. README.md describes the format and the runner's protocol.
package conformance
