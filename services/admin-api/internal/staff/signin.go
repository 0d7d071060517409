package staff

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"github.com/go-json-experiment/json/jsontext"
	"golang.org/x/oauth2"
)

// ErrSignInRefused is returned where the issuer did not accept the code, or what it sent does not hold.
var ErrSignInRefused = errors.New("the sign-in was not accepted")

// SignIn is the authorization code flow of the console, with PKCE (RFC 7636). It is off without a client id.
type SignIn struct {
	ClientID, ClientSecret, RedirectURL string
}

// HasStaticTokens says whether one can sign in by a token of the tokens file.
func (d *Directory) HasStaticTokens() bool { return d.static != nil && !d.static.isEmpty() }

// HasSignIn says whether one can sign in by the issuer.
func (d *Directory) HasSignIn() bool { return d.issuer != nil && d.issuer.signIn.ClientID != "" }

// StaticToken finds a token of the tokens file by its SHA-256: sessions keep that and not the token, and end within
// a second of the token's being taken out of the file.
func (d *Directory) StaticToken(hash [sha256.Size]byte) (Identity, bool) {
	if d.static == nil {
		return Identity{}, false
	}
	return d.static.find(hash)
}

// SignInURL is where a browser is sent to sign in. The caller keeps state, nonce and verifier until it comes back.
func (d *Directory) SignInURL(ctx context.Context, state, nonce, verifier string) (string, error) {
	if !d.HasSignIn() {
		return "", ErrSignInRefused
	}
	found, err := d.issuer.discover(ctx)
	if err != nil {
		return "", err
	}
	return d.issuer.oauth(found).AuthCodeURL(state, oidc.Nonce(nonce), oauth2.S256ChallengeOption(verifier)), nil
}

// SignInWith exchanges the code that the browser brought back, and tells who signed in.
func (d *Directory) SignInWith(ctx context.Context, code, nonce, verifier string) (Identity, error) {
	if !d.HasSignIn() {
		return Identity{}, ErrSignInRefused
	}
	return d.issuer.exchange(ctx, code, nonce, verifier)
}

func (i *issuer) oauth(found *discovered) *oauth2.Config {
	return &oauth2.Config{
		ClientID: i.signIn.ClientID, ClientSecret: i.signIn.ClientSecret, RedirectURL: i.signIn.RedirectURL,
		Endpoint: found.endpoint, Scopes: []string{oidc.ScopeOpenID, "profile"},
	}
}

func (i *issuer) exchange(ctx context.Context, code, nonce, verifier string) (Identity, error) {
	found, err := i.discover(ctx)
	if err != nil {
		return Identity{}, err
	}
	ctx, cancel := context.WithTimeout(context.WithValue(ctx, oauth2.HTTPClient, i.client), 2*issuerTimeout)
	defer cancel()
	token, err := i.oauth(found).Exchange(ctx, code, oauth2.VerifierOption(verifier))
	if _, refused := errors.AsType[*oauth2.RetrieveError](err); refused {
		return Identity{}, fmt.Errorf("%w: %w", ErrSignInRefused, err)
	}
	if err != nil {
		return Identity{}, errors.Join(ErrIssuerUnavailable, err)
	}
	raw, ok := token.Extra("id_token").(string)
	if !ok {
		return Identity{}, fmt.Errorf("%w: the issuer sent no id_token", ErrSignInRefused)
	}
	outage := &keyOutage{}
	verified, err := found.idTokens.Verify(context.WithValue(ctx, outageKey{}, outage), raw)
	if outage.happened {
		return Identity{}, ErrIssuerUnavailable
	}
	if err != nil {
		return Identity{}, fmt.Errorf("%w: %w", ErrSignInRefused, err)
	}
	if nonce == "" || verified.Nonce != nonce {
		return Identity{}, fmt.Errorf("%w: the nonce is another", ErrSignInRefused)
	}
	var claims map[string]jsontext.Value
	if err := verified.Claims(&rawClaims{&claims}); err != nil {
		return Identity{}, fmt.Errorf("%w: %w", ErrSignInRefused, err)
	}
	who, err := i.identity(verified.Subject, claims)
	if errors.Is(err, ErrNoRole) {
		// Some issuers put roles into access tokens only; one made for this API says them as well as an ID token.
		if fromAccess, err := i.authenticate(ctx, token.AccessToken); err == nil && fromAccess.Name == "oidc:"+verified.Subject {
			return fromAccess, nil
		}
	}
	return who, err
}

// SessionLength is how long a session of the console lasts: one by the issuer shorter, since nobody tells us when the
// issuer would say no.
func SessionLength(byIssuer bool) time.Duration {
	if byIssuer {
		return time.Hour
	}
	return 8 * time.Hour
}
