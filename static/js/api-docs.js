// Shows the OpenAPI document. Calls made from here go as the signed-in person, with the CSRF token.

const place = document.getElementById("api-docs");

globalThis.SwaggerUIBundle({
  url: place.dataset.schema,
  domNode: place,
  presets: [globalThis.SwaggerUIBundle.presets.apis],
  layout: "BaseLayout",
  deepLinking: true,
  validatorUrl: null,
  docExpansion: "none",
  requestInterceptor: (request) => {
    if (!["GET", "HEAD", undefined].includes(request.method)) {
      request.headers["X-CSRFToken"] = place.dataset.csrf;
    }
    return request;
  },
});
