Redoc.init('/openapi.json', {
  disableSearch: true,
  hideDownloadButtons: false,
  nativeScrollbars: true,
  pathInMiddlePanel: true,
  requiredPropsFirst: true,
  theme: {
    colors: { primary: { main: '#1d4ed8' } },
    typography: { fontFamily: 'system-ui, sans-serif', headings: { fontFamily: 'system-ui, sans-serif' } },
  },
}, document.getElementById('reference'));
