package console

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"time"

	"golang.org/x/oauth2"

	"apipay.io/hub/pkg/httpapi"
	"apipay.io/hub/services/admin-api/internal/staff"
)

const signInTime = 10 * time.Minute

// signInState waits in a cookie for the browser to come back from the issuer.
type signInState struct {
	State    string    `json:"state"`
	Nonce    string    `json:"nonce"`
	Verifier string    `json:"verifier"`
	Next     string    `json:"next"`
	Until    time.Time `json:"until"`
}

type signInView struct {
	Next   string
	Issuer bool
	Tokens bool
	Error  string
}

// toSignIn sends to the sign-in and, after it, back to the page that was asked for.
func (v *visit) toSignIn() error {
	target := "/sign-in"
	if v.Request().Method == http.MethodGet {
		target += "?next=" + url.QueryEscape(v.Request().URL.RequestURI())
	}
	if v.Request().Header.Get("HX-Request") != "" {
		v.Response().Header().Set("HX-Redirect", "/sign-in")
		return v.NoContent(http.StatusUnauthorized)
	}
	return v.Redirect(http.StatusSeeOther, target)
}

// localPath keeps only a page of this console: a link to the sign-in must not lead elsewhere.
func localPath(next string) string {
	u, err := url.Parse(next)
	if err != nil || u.Scheme != "" || u.Host != "" || u.User != nil || !strings.HasPrefix(next, "/") ||
		strings.HasPrefix(next, "//") || strings.ContainsAny(next, "\\\r\n\t") || strings.HasPrefix(u.Path, "/sign-") {
		return "/deliveries"
	}
	return u.RequestURI()
}

func (c *Console) signInPage(v *visit) error {
	return v.renderSignIn(http.StatusOK, v.QueryParam("next"), "")
}

func (v *visit) renderSignIn(status int, next, message string) error {
	return v.render(status, "signin", "Sign in", signInView{
		Next: localPath(next), Issuer: v.console.staff.HasSignIn(), Tokens: v.console.staff.HasStaticTokens(), Error: message,
	})
}

func (c *Console) signInByToken(v *visit) error {
	next := v.form("next")
	hash := sha256.Sum256([]byte(strings.TrimSpace(v.form("token"))))
	if _, ok := c.staff.StaticToken(hash); !ok {
		c.logger.WarnContext(v.Request().Context(), "sign_in.refused", "ip", v.RealIP(), "request_id", httpapi.RequestID(v.Request().Context()))
		return v.renderSignIn(http.StatusUnauthorized, next, "This token is not known.")
	}
	if err := v.startSession(session{Token: hash[:]}, false); err != nil {
		return err
	}
	return v.Redirect(http.StatusSeeOther, localPath(next))
}

func (c *Console) signInAtIssuer(v *visit) error {
	state := signInState{
		State: rand.Text(), Nonce: rand.Text(), Verifier: oauth2.GenerateVerifier(),
		Next: localPath(v.QueryParam("next")), Until: c.clock().Add(signInTime),
	}
	target, err := c.staff.SignInURL(v.Request().Context(), state.State, state.Nonce, state.Verifier)
	if errors.Is(err, staff.ErrIssuerUnavailable) {
		return v.renderSignIn(http.StatusServiceUnavailable, state.Next, "The sign-in service cannot be reached at the moment. Try again shortly.")
	}
	if err != nil {
		return v.renderSignIn(http.StatusNotFound, state.Next, "Single sign-on is not set up.")
	}
	if err := v.setCookie(signInCookie, state, signInTime); err != nil {
		return err
	}
	return v.Redirect(http.StatusSeeOther, target)
}

func (c *Console) signInCallback(v *visit) error {
	var kept signInState
	ok := v.readCookie(signInCookie, &kept) && c.clock().Before(kept.Until)
	v.dropCookie(signInCookie)
	given := v.QueryParam("state")
	if !ok || given == "" || subtle.ConstantTimeCompare([]byte(given), []byte(kept.State)) != 1 {
		return v.renderSignIn(http.StatusBadRequest, "", "The sign-in took too long or was begun elsewhere. Start again.")
	}
	if v.QueryParam("error") != "" || v.QueryParam("code") == "" {
		return v.renderSignIn(http.StatusUnauthorized, kept.Next, "The sign-in was not completed.")
	}
	who, err := c.staff.SignInWith(v.Request().Context(), v.QueryParam("code"), kept.Nonce, kept.Verifier)
	switch {
	case errors.Is(err, staff.ErrNoRole):
		return v.renderSignIn(http.StatusForbidden, kept.Next, "Your account has no role here. Ask an administrator for one.")
	case errors.Is(err, staff.ErrIssuerUnavailable):
		return v.renderSignIn(http.StatusServiceUnavailable, kept.Next, "The sign-in service cannot be reached at the moment. Try again shortly.")
	case err != nil:
		c.logger.WarnContext(v.Request().Context(), "sign_in.refused", "ip", v.RealIP(), "error", err.Error(),
			"request_id", httpapi.RequestID(v.Request().Context()))
		return v.renderSignIn(http.StatusUnauthorized, kept.Next, "The sign-in was not accepted. Start again.")
	}
	s := session{Name: who.Name, Role: who.Role, Confined: who.IsConfined(), Tenants: who.Tenants}
	if err := v.startSession(s, true); err != nil {
		return err
	}
	return v.Redirect(http.StatusSeeOther, kept.Next)
}

func (c *Console) signOut(v *visit) error {
	if v.session != nil && !v.session.hasToken(v.form("csrf")) {
		return v.fail(http.StatusForbidden, "The page is too old. Load it again.", "")
	}
	v.dropCookie(sessionCookie)
	return v.Redirect(http.StatusSeeOther, "/sign-in")
}
