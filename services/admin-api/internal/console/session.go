package console

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/google/uuid"

	"apipay.io/hub/services/admin-api/internal/staff"
)

// seal keeps values in cookies that their browser can neither read nor change (AES-256-GCM). What a value is for is
// authenticated with it, so that one cookie is never taken for another.
type seal struct{ aead cipher.AEAD }

func newSeal(key []byte) (*seal, error) {
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, fmt.Errorf("making the cookies' cipher: %w", err)
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		return nil, fmt.Errorf("making the cookies' cipher: %w", err)
	}
	return &seal{aead}, nil
}

func (s *seal) close(purpose string, value any) (string, error) {
	plain, err := json.Marshal(value)
	if err != nil {
		return "", fmt.Errorf("encoding the cookie %s: %w", purpose, err)
	}
	// #nosec G407 -- this AEAD takes no nonce: it makes one by itself
	return base64.RawURLEncoding.EncodeToString(s.aead.Seal(nil, nil, plain, []byte(purpose))), nil
}

var errBadCookie = errors.New("not a cookie of this console")

func (s *seal) open(purpose, text string, value any) error {
	raw, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil {
		return errBadCookie
	}
	plain, err := s.aead.Open(nil, nil, raw, []byte(purpose))
	if err != nil {
		return errBadCookie
	}
	if err := json.Unmarshal(plain, value); err != nil {
		return errBadCookie
	}
	return nil
}

const (
	sessionCookie = "apipay_session"
	signInCookie  = "apipay_sign_in"
	flashCookie   = "apipay_flash"
)

// session is who signed in and until when. It ends by its time, whatever the browser keeps.
type session struct {
	// Token is the SHA-256 of a static token, which is looked up again at each request.
	Token []byte `json:"token,omitzero"`
	// Name, Role and Tenants are those of somebody who signed in at the issuer.
	Name      string      `json:"name,omitzero"`
	Role      staff.Role  `json:"role,omitzero"`
	Confined  bool        `json:"confined,omitzero"`
	Tenants   []uuid.UUID `json:"tenants,omitzero"`
	CSRF      string      `json:"csrf"`
	ExpiresAt time.Time   `json:"expires_at"`
	who       staff.Identity
}

func (s *session) hasToken(token string) bool {
	return token != "" && subtle.ConstantTimeCompare([]byte(s.CSRF), []byte(token)) == 1
}

func (c *Console) readSession(v *visit) (*session, bool) {
	var s session
	if !v.readCookie(sessionCookie, &s) || s.CSRF == "" || !c.clock().Before(s.ExpiresAt) {
		return nil, false
	}
	if len(s.Token) == sha256.Size {
		who, ok := c.staff.StaticToken([sha256.Size]byte(s.Token))
		s.who = who
		return &s, ok
	}
	if s.Name == "" || !s.Role.May(staff.Viewer) || !c.staff.HasSignIn() {
		return nil, false
	}
	s.who = staff.Identity{Name: s.Name, Role: s.Role}
	if s.Confined {
		// An empty list is no tenant, and nil would be every one.
		s.who.Tenants = append([]uuid.UUID{}, s.Tenants...)
	}
	return &s, true
}

func (v *visit) startSession(s session, byIssuer bool) error {
	length := staff.SessionLength(byIssuer)
	s.CSRF, s.ExpiresAt = rand.Text(), v.console.clock().Add(length)
	return v.setCookie(sessionCookie, s, length)
}

// isSecure says whether cookies are for TLS alone: always, but on the machine itself and in development.
func (v *visit) isSecure() bool {
	if v.console.dev {
		return false
	}
	host := v.Request().Host
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	ip := net.ParseIP(host)
	return host != "localhost" && (ip == nil || !ip.IsLoopback())
}

func (v *visit) cookieName(name string) string {
	if v.isSecure() {
		return "__Host-" + name
	}
	return name
}

// setCookie seals value. Lax, since a sign-in comes back from the issuer's site and links lead here from tickets; writes
// are POSTs, with which Lax sends nothing.
func (v *visit) setCookie(name string, value any, length time.Duration) error {
	text, err := v.console.seal.close(name, value)
	if err != nil {
		return err
	}
	v.SetCookie(v.cookie(name, text, int(length.Seconds())))
	return nil
}

func (v *visit) dropCookie(name string) { v.SetCookie(v.cookie(name, "", -1)) }

func (v *visit) cookie(name, text string, maxAge int) *http.Cookie {
	return &http.Cookie{ // #nosec G124 -- Secure is left out on the machine itself and in development alone
		Name: v.cookieName(name), Value: text, Path: "/", MaxAge: maxAge,
		Secure: v.isSecure(), HttpOnly: true, SameSite: http.SameSiteLaxMode,
	}
}

func (v *visit) readCookie(name string, value any) bool {
	cookie, err := v.Cookie(v.cookieName(name))
	return err == nil && v.console.seal.open(name, cookie.Value, value) == nil
}

// flash is told once, on the next page.
type flash struct {
	Kind string `json:"kind"` // done or refused
	Text string `json:"text"`
}

func (v *visit) tell(kind, text string) error {
	return v.setCookie(flashCookie, flash{Kind: kind, Text: text}, time.Minute)
}

func (v *visit) told() *flash {
	var f flash
	if !v.readCookie(flashCookie, &f) {
		return nil
	}
	v.dropCookie(flashCookie)
	return &f
}
